// biome-ignore lint/suspicious/noExplicitAny: JSON of any form
type Json = any;

/** A JSON Schema, as far as docs/reference/openapi.json uses it. */
export type Schema = Readonly<Record<string, Json>>;

const TYPES: Readonly<Record<string, (value: unknown) => boolean>> = {
  array: Array.isArray,
  boolean: (value) => typeof value === 'boolean',
  integer: Number.isInteger,
  null: (value) => value === null,
  number: (value) => typeof value === 'number',
  object: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  string: (value) => typeof value === 'string',
};

/** What of a value is wrong by each keyword; keywords that hold for another type say nothing. */
const KEYWORDS: Readonly<Record<string, (given: Json, value: Json, check: Check, schema: Schema) => string[]>> = {
  type: (types, value) => ([types].flat().some((type) => TYPES[type]?.(value)) ? [] : [`is no ${types}`]),
  const: (wanted, value) => (value === wanted ? [] : [`is not ${wanted}`]),
  enum: (all, value) => (all.includes(value) ? [] : [`is none of ${all}`]),
  pattern: (pattern, value) => (typeof value !== 'string' || new RegExp(pattern).test(value) ? [] : [`not ${pattern}`]),
  minimum: (least, value) => (value < least ? [`is below ${least}`] : []),
  maximum: (most, value) => (value > most ? [`is above ${most}`] : []),
  minLength: (least, value) => (value.length < least ? ['is too short'] : []),
  minItems: (least, value) => (Array.isArray(value) && value.length < least ? ['has too few'] : []),
  maxItems: (most, value) => (Array.isArray(value) && value.length > most ? ['has too many'] : []),
  items: (each, value, check) => (Array.isArray(value) ? value.flatMap((one, i) => check(each, one, `[${i}]`)) : []),
  required: (names, value) => (isObject(value) ? names.filter((name: string) => !(name in value)) : []),
  properties: (of, value, check) =>
    isObject(value)
      ? Object.keys(of).flatMap((name) => (name in value ? check(of[name], value[name], `.${name}`) : []))
      : [],
  additionalProperties: (each, value, check, { properties = {} }) =>
    isObject(value)
      ? Object.keys(value).flatMap((name) => (name in properties ? [] : check(each, value[name], `.${name}`)))
      : [],
  oneOf: (all, value, check) => {
    const fits = all.filter((one: Schema) => check(one, value, '').length === 0).length;
    return fits === 1 ? [] : [`fits ${fits} of ${all.length}`];
  },
  allOf: (all, value, check) => all.flatMap((one: Schema) => check(one, value, '')),
  contentEncoding: (_, value) => (Buffer.from(value, 'base64').toString('base64') === value ? [] : ['is no base64']),
};

/** Keywords that only tell. */
const TELL = new Set(['contentMediaType', 'default', 'description', 'example', 'format']);

type Check = (schema: Schema, value: unknown, at: string) => string[];

const isObject = (value: unknown): value is Record<string, unknown> => TYPES.object?.(value) === true;

/** What of a value does not match a schema, one text each. Throws if the schema has a keyword that is not known here. */
export function mismatches(schema: Schema, value: unknown, resolve: (reference: string) => Schema, at = ''): string[] {
  if (schema.$ref) return mismatches(resolve(schema.$ref), value, resolve, at);
  const check: Check = (inner, one, below) => mismatches(inner, one, resolve, at + below);
  return Object.entries(schema).flatMap(([keyword, given]) => {
    if (TELL.has(keyword)) return [];
    const judge = KEYWORDS[keyword];
    if (!judge) throw new Error(`unknown keyword ${keyword}`);
    return judge(given, value, check, schema).map((why) =>
      why.startsWith('.') || why.startsWith('[') ? why : `${at}: ${why}`,
    );
  });
}

/** The fields of a value that its schema does not name, as paths. */
export function undocumented(
  schema: Schema,
  value: unknown,
  resolve: (reference: string) => Schema,
  at = '',
): string[] {
  if (Array.isArray(value)) {
    const each = all(schema, resolve).find(({ items }) => items)?.items ?? {};
    return value.flatMap((one, i) => undocumented(each, one, resolve, `${at}[${i}]`));
  }
  if (!isObject(value)) return [];
  const parts = all(schema, resolve);
  const isOpen = parts.some(({ additionalProperties }) => additionalProperties);
  if (isOpen || !parts.some(({ properties }) => properties)) return [];
  return Object.keys(value).flatMap((name) => {
    const part = parts.find(({ properties = {} }) => name in properties);
    return part ? undocumented(part.properties[name], value[name], resolve, `${at}.${name}`) : [`${at}.${name}`];
  });
}

/** A schema and all that it is made of. */
function all(schema: Schema, resolve: (reference: string) => Schema): Schema[] {
  if (schema.$ref) return all(resolve(schema.$ref), resolve);
  return [schema, ...[...(schema.allOf ?? []), ...(schema.oneOf ?? [])].flatMap((one) => all(one, resolve))];
}
