"""`python -m jetraft` starts the server, exactly like the `jetraft` command."""

from jetraft.api.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
