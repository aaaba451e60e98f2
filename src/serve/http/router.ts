import { Refusal } from './refusal.js';

/** A route: a method and a path, whose parts after colons are parameters. `C`: what its handler gets. */
export interface Route<C> {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** For example `/api/:ns/:queue/job/:id`. */
  readonly path: string;
  /** The last parameter takes the rest of the path, with its slashes. */
  readonly rest?: boolean;
  /** The handler reads the body. Bodies of other requests are dropped: some clients send one with every request. */
  readonly readsBody?: boolean;
  readonly handle: (call: C) => Promise<void> | void;
}

/** The values of the parameters of a path, by their names. */
export type Params = Readonly<Record<string, string>>;

/** Finds the route of a request: the first one that fits. */
export class Router<C, R extends Route<C> = Route<C>> {
  readonly #routes: readonly { readonly route: R; readonly pattern: RegExp }[];

  constructor(routes: readonly R[]) {
    this.#routes = routes.map((route) => ({ route, pattern: patternOf(route) }));
  }

  /** The route of a path and its decoded parameters; undefined: there is none. Throws a refusal (400) for bad escapes. */
  match(method: string, path: string): { readonly route: R; readonly params: Params } | undefined {
    for (const { route, pattern } of this.#routes) {
      if (route.method !== method) continue;
      const found = pattern.exec(path);
      if (found) return { route, params: decoded(path, found.groups ?? {}) };
    }
    return undefined;
  }
}

function patternOf({ path, rest }: Route<never>): RegExp {
  const parts = path.replaceAll('.', '\\.').replace(/:(\w+)/g, '(?<$1>[^/]+)');
  return new RegExp(`^${rest ? parts.replace(/\[\^\/\]\+\)$/, '[^/].*)') : parts}$`);
}

function decoded(path: string, params: Params): Params {
  if (!path.includes('%')) return params;
  try {
    return Object.fromEntries(Object.entries(params).map(([name, text]) => [name, decodeURIComponent(text)]));
  } catch {
    throw new Refusal(400, 'invalid path');
  }
}
