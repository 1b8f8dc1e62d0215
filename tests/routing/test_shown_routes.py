"""The routes that a report shows are those of the passes that it measured."""

from __future__ import annotations

import torch
from tiny.all_cases import CASES
from tiny.samples import samples

from compress.attention.budget_config import BudgetConfig
from compress.evaluation.evaluate import run_evaluation
from compress.evaluation.options import Evaluate
from compress.inference.routes import input_routes
from compress.runtime import Runtime
from compress.transformer.budgets import at_budget, with_budgets
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig

CPU = Runtime(device="cpu", batch_size=8)


def test_routes_are_shown_at_the_budget_that_was_asked_for() -> None:
    torch.manual_seed(0)
    model = with_budgets(CASES["timm plain"]().model, BudgetConfig())
    routed = with_routers(model, RoutingConfig(blocks=(1,), capacity=(0.3,))).eval()
    for _, layer in routed_layers(routed):
        layer.router.weight.data.normal_()
    data = samples(model, 8)
    options = Evaluate(budget=0.25, latency=False, memory=False, intervals=False)
    shown = run_evaluation({"routed": routed}, data=data, options=options, runtime=CPU).routes["routed"]
    with at_budget([routed], 0.25, None):
        limited = input_routes(routed, data, range(4), CPU)
    unlimited = input_routes(routed, data, range(4), CPU)
    assert shown == limited
    assert shown != unlimited
