#!/usr/bin/env bash
# Prune, fuse and evaluate a model, and end with an exit code that says whether the result is good enough.
#
#   MODEL=./my-vit CALIBRATION=./calibration TEST=./test ./gate.sh
#
# Exit codes: 0 good enough, 1 a bug, 2 wrong call, model or data, 3 not good enough, 130 interrupted.
set -uo pipefail

MODEL=${MODEL:-}              # a folder, timm:NAME, hf:ID, open_clip:NAME or an artifact
CALIBRATION=${CALIBRATION:-}  # labelled data on which heads are scored
TEST=${TEST:-}                # other labelled data, on which the models are compared
WORK=${WORK:-runs/gate}       # pruned/, fused/, result.json and gates.xml appear here
KEEP=${KEEP:-0.5}             # heads kept per layer: a share, or a count
MEMBERS=${MEMBERS:-3}
BRANCH_LAYER=${BRANCH_LAYER:-0}
MAX_LOSS=${MAX_LOSS:-0.01}    # accuracy that may be lost
MAX_ECE=${MAX_ECE:-0.05}      # calibration error that is allowed
MAX_FLOPS=${MAX_FLOPS:-1.5}   # FLOPs per input over those of MODEL; members that differ from layer 0 on cost most

finish() { # the name of the step and its exit code
  case $2 in
    3) echo "gate: $1: not good enough; the gates that failed are listed above" >&2 ;;
    2) echo "gate: $1: cannot work; the error above says what, where and how to mend it" >&2 ;;
    130) echo "gate: $1: interrupted; nothing half-written is left, so simply run it again" >&2 ;;
    126 | 127) echo "gate: $1: the program compress is not found or cannot be run" >&2 ;;
    137) echo "gate: $1: killed, probably for want of memory; a smaller --batch-size needs less" >&2 ;;
    *) echo "gate: $1: failed with exit code $2, which is a bug; run it with --debug and report it" >&2 ;;
  esac
  exit "$2"
}

if [[ -z $MODEL || -z $CALIBRATION || -z $TEST ]]; then
  echo "gate: set MODEL, CALIBRATION and TEST" >&2
  exit 2
fi
mkdir -p "$WORK" || exit 2
rm -f "$WORK/result.json" "$WORK/gates.xml"  # those of an earlier call

compress prune "$MODEL" -o "$WORK/pruned" --overwrite --data "$CALIBRATION" \
  --members "$MEMBERS" --keep "$KEEP" --branch-layer "$BRANCH_LAYER" || finish prune $?
compress fuse "$WORK/pruned" -o "$WORK/fused" --overwrite || finish fuse $?
compress eval single="$MODEL" fused="$WORK/fused" --data "$TEST" --no-latency \
  --fail-if "fused: cls/accuracy < single - $MAX_LOSS" --fail-if "fused: cal/ece > $MAX_ECE" \
  --fail-if "fused: cost/flops > single * $MAX_FLOPS" \
  --json "$WORK/result.json" --junit "$WORK/gates.xml" || finish eval $?
echo "gate: good enough; the model is $WORK/fused" >&2
