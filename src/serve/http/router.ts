import { Refusal } from './refusal.js';

/** A route: a method and a path, whose parts after colons are parameters. `C`: what its handler gets. */
export interface Route<C> {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  /** For example `/api/:ns/:queue/job/:id`. */
  readonly path: string;
  /** The last parameter takes the rest of the path, with its slashes. */
  readonly rest?: boolean;
  readonly handle: (call: C) => Promise<void> | void;
}

/** The values of the parameters of a path, by their names. */
export type Params = Readonly<Record<string, string>>;

interface Compiled<R> {
  readonly route: R;
  readonly parts: readonly string[];
}

/** Finds the route of a request. */
export class Router<C, R extends Route<C> = Route<C>> {
  /** By method and number of parts; those with more fixed parts come first. */
  readonly #routes = new Map<string, Compiled<R>[]>();
  /** Those whose last parameter takes the rest, by method. */
  readonly #open = new Map<string, Compiled<R>[]>();

  constructor(routes: readonly R[]) {
    for (const route of routes) {
      const parts = route.path.split('/');
      add(this.#routes, `${route.method} ${parts.length}`, { route, parts });
      if (route.rest) add(this.#open, route.method, { route, parts });
    }
  }

  /** Returns the route, with its parameters decoded; undefined if there is none. Throws a refusal (400) for bad escapes. */
  match(method: string, path: string): { readonly route: R; readonly params: Params } | undefined {
    const given = path.split('/');
    const same = this.#routes.get(`${method} ${given.length}`) ?? [];
    const found = same.find(({ parts }) => fits(parts, given));
    if (found) return { route: found.route, params: paramsOf(found.parts, given) };
    const open = this.#open.get(method)?.find(({ parts }) => parts.length < given.length && fits(parts, given));
    if (!open) return undefined;
    const last = open.parts.length - 1;
    return {
      route: open.route,
      params: paramsOf(open.parts, [...given.slice(0, last), given.slice(last).join('/')]),
    };
  }
}

function add<R>(routes: Map<string, Compiled<R>[]>, key: string, route: Compiled<R>): void {
  const others = routes.get(key) ?? [];
  others.push(route);
  others.sort((a, b) => fixed(b.parts) - fixed(a.parts));
  routes.set(key, others);
}

const fixed = (parts: readonly string[]) => parts.filter((part) => !part.startsWith(':')).length;

const fits = (parts: readonly string[], given: readonly string[]) =>
  parts.every((part, i) => (part.startsWith(':') ? given[i] !== '' : part === given[i]));

function paramsOf(parts: readonly string[], given: readonly string[]): Params {
  const params: Record<string, string> = {};
  for (const [i, part] of parts.entries())
    if (part.startsWith(':')) params[part.slice(1)] = decoded(given[i] as string);
  return params;
}

function decoded(text: string): string {
  if (!text.includes('%')) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Refusal(400, 'invalid path');
  }
}
