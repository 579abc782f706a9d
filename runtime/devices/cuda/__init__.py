"""The device `cuda`: a party's memory and steps on a GPU, and messages on their way through.

| file | what it is |
| --- | --- |
| `opening.py` | devices, by what they are called |
| `drivers/` | what the device asks of a GPU's driver, from PyCUDA or from an emulator |
| `program.py` | a party's steps as launches, once every step is proven to stay in its memory |
| `prologues.py` | sums of shares that a product makes as it loads them |
| `epilogues.py` | element-wise steps that a product runs on its sums |
| `lifetimes.py` | which places nobody reads any more, so that a launch may leave them unwritten |
| `archs.py` | what GPUs are called |
| `nvcc.py` | where CUDA's compiler is |
| `cubins.py` | machine code of kernels, by content: prepared, cached, or compiled |
| `packing.py` | operands laid out once a session, for products that read them again |
| `staging.py` | messages between the GPU and the links |
| `graphs.py` | steps that come again, as one launch |
| `long_rounds.py` | messages that move while steps run |
| `timeline.py` | when what ran |
| `device.py` | the device |
"""
