"""The stages from parallel text to a scored model, and the contracts between them."""
