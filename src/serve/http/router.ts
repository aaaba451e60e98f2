import { closest, printable } from '../../internal.js';
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
  /** The parameters that its query may have. */
  readonly query?: readonly string[];
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

/** Parameters of any route: a token, and words of lmstfy that mean nothing here. */
const ANYWHERE = ['token', 'freeze_tries', 'priority', 'kind', 'force_update'];

/**
 * Throws a refusal (400) for a parameter that its route does not have. One without a value is ignored: all of ours have
 * values, and lmstfy's PHP client sends `?Array`.
 */
export function checkQuery({ query = [] }: Pick<Route<never>, 'query'>, given: URLSearchParams): void {
  for (const [name, value] of given) {
    if (value === '' || query.includes(name) || ANYWHERE.includes(name)) continue;
    const close = closest(name, query);
    const all = query.length > 0 ? `takes ${query.join(', ')}` : 'takes none';
    throw new Refusal(400, `unknown parameter ${printable(name)}: ${close ? `did you mean ${close}?` : `this ${all}`}`);
  }
}

function decoded(path: string, params: Params): Params {
  if (!path.includes('%')) return params;
  try {
    return Object.fromEntries(Object.entries(params).map(([name, text]) => [name, decodeURIComponent(text)]));
  } catch {
    throw new Refusal(400, 'invalid path');
  }
}
