"""python -m inference"""

from inference.command_line import main

if __name__ == "__main__":
    main()
