import { spawnSync } from 'node:child_process';

/** The library that fakes the clock of a process (libfaketime); empty if it is not installed. */
const LIBRARY =
  spawnSync('faketime', ['-m', '-f', '+0s', 'sh', '-c', 'printf %s "$LD_PRELOAD"']).stdout?.toString() ?? '';

/** Whether clocks can be faked here. */
export const canSetClocks = LIBRARY !== '';

/** The environment for a process whose wall clock is off by `offset`, such as +300s. */
export function clockOff(offset: string): Record<string, string> {
  return { LD_PRELOAD: LIBRARY, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' };
}
