import { spawnSync } from 'node:child_process';

/** The library that gives a process a clock of its own (libfaketime); empty where it is not installed. */
const LIBRARY =
  spawnSync('faketime', ['-m', '-f', '+0s', 'sh', '-c', 'printf %s "$LD_PRELOAD"']).stdout?.toString() ?? '';

/** Whether clocks can be set wrong here. */
export const canSetClocks = LIBRARY !== '';

/** The environment of a process whose wall clock is off by `offset`, such as +300s, and runs evenly. */
export function clockOff(offset: string): Record<string, string> {
  return { LD_PRELOAD: LIBRARY, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' };
}
