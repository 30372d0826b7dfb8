/** Reads until this text has come. */
export async function readUntil(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  text: string,
): Promise<string> {
  let seen = "";
  while (!seen.includes(text)) {
    const { done, value } = await reader.read();
    if (done) throw new Error(`ended before ${text}: ${seen}`);
    seen += Buffer.from(value).toString();
  }
  return seen;
}

/** Reads to the end. */
export async function readAll(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  let seen = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return seen;
    seen += Buffer.from(value).toString();
  }
}
