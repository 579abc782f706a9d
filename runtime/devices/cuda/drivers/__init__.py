"""Who stands between a device and a GPU.

| file | what it is |
| --- | --- |
| `interface.py` | what the device asks of a GPU's driver: memory, streams, events, launches |
| `pycuda.py` | the same from PyCUDA; the only file that needs a GPU |
| `libcuda.py` | the driver's calls for graphs, which PyCUDA lacks |
| `gpus.py` | which GPUs there are |
| `emulator.py` | the interface in this process's memory, for tests |
"""
