"""What a terminal shows: interprets the output that a program wrote to it."""

import re

TOKEN = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+")


def shown(written):
    """Return the lines that are on the screen, without trailing spaces."""
    lines, row, column = [""], 0, 0
    for token in TOKEN.finditer(written):
        private, number, command = token.groups()
        if token[0] == "\r":
            column = 0
        elif token[0] == "\n":  # a terminal gets \r\n, so the column is 0 already
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif command is None:
            before, after = lines[row][:column], lines[row][column + len(token[0]) :]
            lines[row] = before.ljust(column) + token[0] + after
            column += len(token[0])
        elif command == "A":
            row = max(0, row - int(number or 1))
        elif command == "K":
            lines[row] = {"2": "", "": lines[row][:column]}[number]
        elif command != "m" and not private:
            raise ValueError(f"unknown escape sequence {token[0]!r}")
    return [line.rstrip() for line in lines]
