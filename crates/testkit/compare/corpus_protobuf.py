"""Protobuf messages without their schema, to compare those of two servers. Used by corpus.py."""


def varint(data, at):
    """Returns the number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has ten bytes at most")


def fields(data):
    """Returns the fields of a message: number and value. Raises ValueError or IndexError if it is none."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise ValueError("no field has the number 0")
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at:at + size].hex(), at + size
        else:
            raise ValueError(f"wire type {wire}")
        if at > len(data):
            raise ValueError("a field is cut off")
        found.append((number, value))
    return found


def tree(data, clean):
    """Returns a message as nested lists. Texts pass through `clean`, and numbers that a server may have chosen are left out."""
    try:
        text = data.decode()
        if all(char.isprintable() or char in "\n\t" for char in text):
            return clean(text)
    except UnicodeDecodeError:
        pass
    try:
        inner = fields(data)
    except (ValueError, IndexError):
        return data.hex()
    return [[number, tree(value, clean) if isinstance(value, bytes) else "<own>" if is_own(value) else value]
            for number, value in inner]


def is_own(value):
    """Returns whether a number may be a time or a node port, which each server chooses."""
    return isinstance(value, int) and (1_700_000_000 < value < 3_000_000_000 or 30_000 <= value <= 32_767)


def object_tree(data, clean):
    """Returns the object in an answer as `tree` does: behind four bytes it is the second field of an envelope."""
    return [[number, tree(value, clean) if isinstance(value, bytes) else value] for number, value in fields(data[4:])]
