"""The command line's commands: a module each, with `add`, which gives the command its options."""
