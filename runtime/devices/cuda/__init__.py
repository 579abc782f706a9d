"""The device `cuda`: a party's memory and steps on a GPU, and messages on their way through.

| file | what it is |
| --- | --- |
| `opening.py` | devices, by what they are called |
| `gpus.py` | which GPUs there are |
| `driver.py` | what the device asks of a GPU's driver: memory, streams, events, launches |
| `pycuda_driver.py` | the same from PyCUDA; the only file that needs a GPU |
| `libcuda.py` | the driver's calls for graphs, which PyCUDA lacks |
| `emulator_driver.py` | the same in this process's memory, for tests |
| `program.py` | a party's steps as launches, once every step is proven to stay in its memory |
| `archs.py` | what GPUs are called |
| `nvcc.py` | where CUDA's compiler is |
| `cubins.py` | machine code of kernels, by content: prepared, cached, or compiled |
| `staging.py` | messages between the GPU and the links |
| `graphs.py` | steps that come again, as one launch |
| `long_rounds.py` | messages that move while steps run |
| `timeline.py` | when what ran |
| `device.py` | the device |
"""
