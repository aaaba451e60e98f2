import { afterEach } from 'vitest';

const last: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of last.splice(0).reverse()) await clean();
});

/** Calls `clean` after the test, in reverse order. */
export function afterwards(clean: () => unknown): void {
  last.push(clean);
}

/** Stops what `making` resolves to after the test. */
export async function during<T extends { stop(): unknown }>(making: T | Promise<T>): Promise<T> {
  const made = await making;
  afterwards(() => made.stop());
  return made;
}
