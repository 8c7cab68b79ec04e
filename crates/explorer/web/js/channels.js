/** The channel protocol of exec over WebSocket (`v5.channel.k8s.io`), and terminal output as plain text. */

export const PROTOCOLS = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
export const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 };
const CLOSE = 255;

/** A frame that carries bytes on a channel. */
export function frame(channel, bytes) {
  const data = new Uint8Array(bytes.length + 1);
  data[0] = channel;
  data.set(bytes, 1);
  return data;
}

/** The frame that closes a channel (v5 only). */
export const closeFrame = (channel) => new Uint8Array([CLOSE, channel]);

/** Splits a frame: `{channel, bytes}`. */
export function parseFrame(buffer) {
  const data = new Uint8Array(buffer);
  return { channel: data[0], bytes: data.subarray(1) };
}

/** The end of a process from the status on the error channel: `{ok, code, message}`. */
export function exitOf(status) {
  if (status.status === 'Success') return { ok: true, code: 0, message: '' };
  const cause = (status.details?.causes ?? []).find((one) => one.reason === 'ExitCode');
  return { ok: false, code: cause ? Number(cause.message) : null, message: status.message ?? '' };
}

/** Control sequences of terminals: CSI, OSC and single ones. */
// eslint-disable-next-line no-control-regex
const SEQUENCES = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]/g;

/** Output without control sequences; a carriage return starts its line again, a backspace removes. */
export function plainText(text) {
  const clean = text.replace(SEQUENCES, '').replace(/\r\n/g, '\n');
  return clean.split('\n').map((line) => {
    const last = line.slice(line.lastIndexOf('\r') + 1);
    let result = '';
    for (const char of last) {
      if (char === '\b') result = result.slice(0, -1);
      else if (char >= ' ' || char === '\t') result += char;
    }
    return result;
  }).join('\n');
}
