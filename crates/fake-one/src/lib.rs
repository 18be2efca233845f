//! An OpenNebula for tests: oned, OneFlow and OneGate that answer as the recorded ones, and a program for each VM.
