import { isIPv6 } from 'node:net';
import type { Exchange } from '../http/exchange.js';

/** Whether only programs on this machine can have this address. */
export function isLoopback(address: string): boolean {
  return address === '::1' || /^(::ffff:)?127\.\d+\.\d+\.\d+$/.test(address);
}

/**
 * Headers that only proxies add, besides X-Forwarded…: RFC 7239, 8586 and 9110, nginx, Apache, and well-known services.
 */
const OF_PROXIES: ReadonlySet<string> = new Set(
  (
    'via forwarded x-real-ip x-client-ip x-cluster-client-ip x-original-forwarded-for x-original-host x-host ' +
    'true-client-ip cf-connecting-ip fastly-client-ip fly-client-ip x-envoy-external-address ' +
    'cdn-loop client-ip forwarded-for cf-ray x-azure-clientip x-appengine-user-ip x-proxyuser-ip'
  ).split(' '),
);

/** Where requests come from, as far as it can be told. */
export class Origin {
  readonly #hosts: ReadonlySet<string>;
  readonly #trustsProxy: boolean;

  /**
   * `hosts`: further names by which clients on this machine may call the server. `trustProxy`: all requests come
   * through a proxy, and the last address in X-Forwarded-For is the one that it saw.
   */
  constructor(hosts: readonly string[], trustProxy: boolean) {
    this.#hosts = new Set(['localhost', ...hosts.map((host) => host.toLowerCase())]);
    this.#trustsProxy = trustProxy;
  }

  /** The address of the client, for counting failures; for IPv6 its network, because a host has countless addresses. */
  addressOf({ request }: Exchange): string {
    const forwarded = this.#trustsProxy ? request.headers['x-forwarded-for'] : undefined;
    const last = String(forwarded ?? '')
      .split(',')
      .at(-1)
      ?.trim();
    const address = (last || (request.socket.remoteAddress ?? '')).replace(/^::ffff:(?=\d+\.)/, '').slice(0, 64);
    // It is written to the log, and a client behind a proxy that passes anything on may have made it up.
    return isIPv6(address) ? network(address) : address.replace(/[^\w.:%-]/g, '?');
  }

  /** Whether a proxy says that it passes the request on. */
  isForwarded({ request: { headers } }: Exchange): boolean {
    return Object.keys(headers).some((name) => OF_PROXIES.has(name) || name.startsWith('x-forwarded'));
  }

  /** Whether a program on this machine asks directly, and by a name that it may use: no proxy, no other site's DNS. */
  isLocal(exchange: Exchange): boolean {
    const { headers, socket, url = '' } = exchange.request;
    if (this.isForwarded(exchange)) return false;
    const named = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
    // Without a Host (HTTP/1.0) it is no browser, which another site's DNS could lead here.
    const names = [headers.host, named].filter((name) => name !== undefined);
    return isLoopback(socket.remoteAddress ?? '') && names.every((name) => this.#isAllowed(name));
  }

  #isAllowed(header: string): boolean {
    const [, host6, name = host6 ?? ''] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d+)?$/.exec(header.toLowerCase()) ?? [];
    return this.#hosts.has(name) || isLoopback(name);
  }
}

/** Whether a browser sends the request for another site: it adds the logins that it knows. */
export function isOfOtherSite({ request: { headers } }: Exchange): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return !OWN.has(String(site));
  return headers.origin !== undefined && hostOf(headers.origin) !== headers.host;
}

/** What a browser says of requests that no other site has made. */
const OWN: ReadonlySet<string> = new Set(['same-origin', 'none']);

const hostOf = (origin: string) => /^https?:\/\/(.*)$/.exec(origin)?.[1];

/** The first 64 bits of an IPv6 address, which one customer of a provider has to itself. */
function network(address: string): string {
  const [head = '', tail] = (address.split('%')[0] as string).split('::');
  const [left, right] = [head, tail ?? ''].map((half) => half.split(':').filter(Boolean)) as [string[], string[]];
  const zeros = tail === undefined ? [] : new Array<string>(Math.max(0, 8 - left.length - right.length)).fill('0');
  return `${[...left, ...zeros, ...right].slice(0, 4).join(':')}::/64`;
}
