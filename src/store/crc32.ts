const TABLE = Uint32Array.from({ length: 256 }, (_, n) => {
  let crc = n;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  return crc;
});

/**
 * Returns the CRC-32 of `text` (as UTF-8) or bytes, as zlib, PNG and crc32() of PHP and Python compute it (ISO 3309): a
 * whole number from 0. `before`: the CRC-32 of what precedes it.
 */
export function crc32(text: string | Buffer, before = 0): number {
  let crc = ~before;
  const bytes = typeof text === 'string' && !isAscii(text) ? Buffer.from(text) : text;
  if (typeof bytes === 'string')
    for (let i = 0; i < bytes.length; i++) crc = (TABLE[(crc ^ bytes.charCodeAt(i)) & 255] as number) ^ (crc >>> 8);
  else for (const byte of bytes) crc = (TABLE[(crc ^ byte) & 255] as number) ^ (crc >>> 8);
  return ~crc >>> 0;
}

function isAscii(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 127) return false;
  return true;
}
