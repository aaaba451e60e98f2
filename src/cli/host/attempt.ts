/** What `action` returns; undefined if it throws: for what may have gone, or may not be allowed. */
export function attempt<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch {
    return undefined;
  }
}
