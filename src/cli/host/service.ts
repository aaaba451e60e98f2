import type { Context } from './context.js';

/** How long systemd-notify may take, ms: it waits until the service manager has read its message. */
const NOTIFY_MS = 5_000;

/**
 * Tells the service manager that the service is ready, if it has asked for that (`Type=notify` of systemd). Does not
 * wait for it. Node has no sockets of this kind, so the program that systemd has for scripts sends the message.
 */
export async function tellReady({ env: { NOTIFY_SOCKET, PATH } }: Context): Promise<void> {
  if (!NOTIFY_SOCKET) return;
  const { spawn } = await import('node:child_process');
  const env = { NOTIFY_SOCKET, PATH };
  // Where systemd is, so is this program. Without it, the service manager says what it has waited for.
  spawn('systemd-notify', ['--ready'], { env, stdio: 'ignore', timeout: NOTIFY_MS })
    .on('error', () => {})
    .unref();
}
