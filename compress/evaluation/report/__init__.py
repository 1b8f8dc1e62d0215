"""The page that explains an evaluation: pictures, tables and examples, as HTML, PNG and JSON."""
