"""AES-128 of the CUDA kernels against the standards' vectors."""

from __future__ import annotations

import numpy as np
import pytest
from calling import RUNNERS, runner

from veilgraph.kernels.cuda import Keys, Launch, Pointer, Source

ENCRYPT = Source(
    "encrypt",
    """
#include "kernels/cuda/aes.cuh"
extern "C" __global__ void encrypt(uint4* blocks, const veil::AesSchedule* schedules,
                                   uint64_t number) {
  __shared__ veil::AesTable table;
  __shared__ veil::AesSchedule key;
  veil::fill_aes_table(table);
  veil::load_aes_schedule(key, schedules, number);
  __syncthreads();
  const veil::Aes aes = veil::aes_of(table, key, threadIdx.x % 32);
  blocks[threadIdx.x] = aes.encrypt(blocks[threadIdx.x]);
}
""",
    ("encrypt",),
)

FIPS_197 = [  # key, block, cipher: appendices B and C.1
    (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "3243f6a8885a308d313198a2e0370734",
        "3925841d02dc09fbdc118597196a0b32",
    ),
    (
        "000102030405060708090a0b0c0d0e0f",
        "00112233445566778899aabbccddeeff",
        "69c4e0d86a7b0430d8cdb78070b4c55a",
    ),
]
# SP 800-38A, F.5.1: the counter blocks and the keystream (cipher text XOR plain text).
SP_800_38A_KEY = "2b7e151628aed2a6abf7158809cf4f3c"
SP_800_38A = [
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", "ec8cdf7398607cb0f2d21675ea9ea1e4"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff00", "362b7c3c6773516318a077d7fc5073ae"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff01", "6a2cc3787889374fbeb4c81b17ba6c44"),
    ("f0f1f2f3f4f5f6f7f8f9fafbfcfdff02", "e89c399ff0f198c6d40a31db156cabfe"),
]


def encrypted(device: str, key: str, blocks: list[str]) -> list[str]:
    """AES-128 of up to 64 blocks, one a thread, under the second of two keys."""
    memory = np.zeros(64 * 16, np.uint8)
    given = np.frombuffer(bytes.fromhex("".join(blocks)), np.uint8)
    memory[: len(given)] = given
    launch = Launch(ENCRYPT, "encrypt", (1, 1, 1), (64, 1, 1), (Pointer(0, 0), Keys(), 1))
    runner(device).run(launch, [memory], keys=bytes(16) + bytes.fromhex(key))
    return [memory[16 * i : 16 * i + 16].tobytes().hex() for i in range(len(blocks))]


@pytest.mark.parametrize("device", RUNNERS)
def test_fips_197(device: str) -> None:
    for key, block, cipher in FIPS_197:
        assert encrypted(device, key, [block]) == [cipher]


@pytest.mark.parametrize("device", RUNNERS)
def test_sp_800_38a(device: str) -> None:
    counters, keystream = zip(*SP_800_38A, strict=True)
    assert encrypted(device, SP_800_38A_KEY, list(counters)) == list(keystream)
