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
  /** The names of the parameters, at the places of their parts. */
  readonly names: readonly (string | undefined)[];
}

/** Finds the route of a request. */
export class Router<C, R extends Route<C> = Route<C>> {
  /** By number of parts and method; those with more fixed parts come first. */
  readonly #routes: Map<string, Compiled<R>[]>[] = [];
  /** Those whose last parameter takes the rest, by method. */
  readonly #open = new Map<string, Compiled<R>[]>();

  constructor(routes: readonly R[]) {
    for (const route of routes) {
      const parts = route.path.split('/');
      const names = parts.map((part) => (part.startsWith(':') ? part.slice(1) : undefined));
      this.#routes[parts.length] ??= new Map();
      add(this.#routes[parts.length] as Map<string, Compiled<R>[]>, route.method, { route, parts, names });
      if (route.rest) add(this.#open, route.method, { route, parts, names });
    }
  }

  /** Returns the route, with its parameters decoded; undefined if there is none. Throws a refusal (400) for bad escapes. */
  match(method: string, path: string): { readonly route: R; readonly params: Params } | undefined {
    const given = path.split('/');
    const found = this.#routes[given.length]?.get(method)?.find((one) => fits(one, given));
    if (found) return { route: found.route, params: paramsOf(found.names, given) };
    const open = this.#open.get(method)?.find((one) => one.parts.length < given.length && fits(one, given));
    if (!open) return undefined;
    const last = open.parts.length - 1;
    return {
      route: open.route,
      params: paramsOf(open.names, [...given.slice(0, last), given.slice(last).join('/')]),
    };
  }
}

function add<R>(routes: Map<string, Compiled<R>[]>, method: string, route: Compiled<R>): void {
  const others = routes.get(method) ?? [];
  others.push(route);
  others.sort((a, b) => fixed(b) - fixed(a));
  routes.set(method, others);
}

const fixed = <R>({ names }: Compiled<R>) => names.filter((name) => name === undefined).length;

function fits<R>({ parts, names }: Compiled<R>, given: readonly string[]): boolean {
  for (let i = 0; i < parts.length; i++) {
    if (names[i] === undefined ? parts[i] !== given[i] : given[i] === '') return false;
  }
  return true;
}

function paramsOf(names: readonly (string | undefined)[], given: readonly string[]): Params {
  const params: Record<string, string> = {};
  for (let i = 0; i < names.length; i++) {
    const name = names[i];
    if (name !== undefined) params[name] = decoded(given[i] as string);
  }
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
