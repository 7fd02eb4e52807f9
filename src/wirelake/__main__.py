"""`python -m wirelake`: the command line."""

from wirelake.cli.main import main

if __name__ == "__main__":
    main()
