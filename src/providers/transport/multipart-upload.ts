/** A multipart/form-data body (RFC 7578) that is made while it is sent: a file of any size takes no memory. */
interface MultipartBody {
  readonly contentType: string;
  readonly body: ReadableStream<Uint8Array>;
}

/** @param name of the file; letters, digits, dots, dashes and underscores only */
export function multipartUpload(
  fields: Readonly<Record<string, string>>,
  name: string,
  content: ReadableStream<Uint8Array>,
): MultipartBody {
  if (!/^[\w.-]+$/.test(name)) throw new TypeError("the name of an uploaded file is none");
  const boundary = `gateway-${crypto.randomUUID()}`;
  const encoder = new TextEncoder();
  const head = Object.entries(fields).map(
    ([field, value]) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${field}"\r\n\r\n${value}\r\n`,
  );
  head.push(
    `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n` +
      "Content-Type: application/jsonl\r\n\r\n",
  );
  const pieces = (async function* () {
    yield encoder.encode(head.join(""));
    yield* content;
    yield encoder.encode(`\r\n--${boundary}--\r\n`);
  })();
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    body: new ReadableStream({
      async pull(controller) {
        const piece = await pieces.next();
        if (piece.done) controller.close();
        else controller.enqueue(piece.value);
      },
      // Ends the reading of the file too.
      async cancel() {
        await pieces.return(undefined);
      },
    }),
  };
}
