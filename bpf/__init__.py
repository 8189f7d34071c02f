"""The BPF programs, as C text that is compiled on the machine they run on."""
