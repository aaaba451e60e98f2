import { expect } from 'vitest';
import type { Balance } from './ledger.js';

/** A storm that is over: how often each fault struck, and how to keep its files. */
interface Past {
  readonly struck: Readonly<Record<string, number>>;
  keep(): string;
}

/** Prints what happened, and fails with what cannot be explained. */
export function expectBalanced(balances: readonly Balance[], storm: Past): void {
  const row = (name: string, cells: readonly unknown[]) =>
    console.log(name.padEnd(40), ...cells.map((cell) => String(cell).padStart(9)));
  row(
    'queue',
    balances.map(({ queue }) => queue),
  );
  for (const name of Object.keys(balances[0]?.figures ?? {})) {
    row(
      name,
      balances.map(({ figures }) => figures[name]),
    );
  }
  const faults = Object.entries(storm.struck).map(([name, times]) => `${name} ${times}`);
  console.log('faults:', faults.join(', ') || 'none');
  const violations = balances.flatMap((balance) => balance.violations);
  if (violations.length > 0) console.log('files to examine:', storm.keep());
  expect(violations).toEqual([]);
}
