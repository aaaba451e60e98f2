import { afterEach } from 'vitest';

const last: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of last.splice(0).reverse()) await clean();
});

/** Has `clean` called when the test is over, the last one given first. */
export function afterwards(clean: () => unknown): void {
  last.push(clean);
}

/** Has what `making` makes stopped when the test is over. */
export async function during<T extends { stop(): unknown }>(making: T | Promise<T>): Promise<T> {
  const made = await making;
  afterwards(() => made.stop());
  return made;
}
