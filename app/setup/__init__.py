"""First start: environment, toolchain, and checks of this machine."""
