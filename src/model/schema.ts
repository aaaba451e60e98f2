import { DelayqError } from './errors.js';

/** How many faults of a payload an error names. */
const NAMED = 5;

/** What a schema says of a value: the value as it returns it, or what is wrong. */
type Verdict<Output> = { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  /** Where in the value; from its outside to its inside. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/**
 * A validator of payloads, by the interface of https://standardschema.dev: a schema of zod, valibot, arktype and others.
 * `Input` is what may be enqueued, `Output` what `json()` of a delivered job returns.
 */
export interface Schema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    /** Must not return a promise: `json()` of a job cannot wait. */
    readonly validate: (value: unknown) => Verdict<Output> | Promise<Verdict<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** Returns `schema` if it is a schema, or undefined. Throws `usage` otherwise. */
export function checkSchema<S extends Schema | undefined>(schema: S): S {
  if (schema === undefined) return schema;
  // A schema of arktype is a function.
  const standard = Object(Object(schema)['~standard']) as Partial<Schema['~standard']>;
  if (standard.version === 1 && typeof standard.validate === 'function') return schema;
  throw new DelayqError('usage', 'schema is not a Standard Schema', {
    why: 'it has no ~standard with version 1 and validate',
    next: 'give a schema of zod 3.24, valibot 1 or arktype 2, or newer',
  });
}

/**
 * Returns the value of a payload as `schema` returns it. Throws `data` if it does not fit, and `usage` if the schema needs
 * to wait. `queue` is its name.
 */
export function fitted<Output>(schema: Schema<unknown, Output>, value: unknown, queue: string): Output {
  const verdict = schema['~standard'].validate(value);
  if (Object(verdict) !== verdict) {
    throw new DelayqError('usage', `the schema of ${queue} says nothing`, {
      why: `its validate() returned ${String(verdict)}`,
      next: 'let it return { value } or { issues }',
    });
  }
  if ('then' in verdict) {
    // What it rejects with is of no use, and must not end the process.
    Promise.resolve(verdict).catch(() => {});
    throw new DelayqError('usage', `the schema of ${queue} is asynchronous`, {
      why: 'json() of a job cannot wait for it',
      next: 'give one without asynchronous checks, and make those in the handler',
    });
  }
  if (!verdict.issues) return verdict.value;
  const { issues } = verdict;
  const rest = issues.length > NAMED ? [`and ${issues.length - NAMED} more`] : [];
  throw new DelayqError('data', `the payload does not fit the schema of ${queue}`, {
    why: [...issues.slice(0, NAMED).map(inWords), ...rest].join('; '),
    next: 'correct the payload, or the schema',
  });
}

/** Where a value is wrong, and how: `lines.0.sku: expected a string`. */
function inWords({ message, path = [] }: Issue): string {
  const keys = path.map((key) => String(typeof key === 'object' ? key.key : key));
  return keys.length > 0 ? `${keys.join('.')}: ${message}` : message;
}
