"""From a placement (2 x n, .npy): its columns alone, one with a row twice, one with half a row."""
import struct
import sys

placement, columns, twice, half = sys.argv[1:]
content = open(placement, "rb").read()
size = 16 * 5
head, numbers = content[:-size], content[-size:]
open(columns, "wb").write(head.replace(b"(2, 5)", b"(5,)  ") + numbers[size // 2 :])
open(twice, "wb").write(head + numbers[8:16] + numbers[8:])
open(half, "wb").write(head + struct.pack("<d", 0.5) + numbers[8:])
