/** S3 takes no smaller parts, but for the last one. */
const MIN_PART_BYTES = 5 * 1024 * 1024;
const SEND_BYTES = 256 * 1024;

interface Upload {
  readonly key: string;
  readonly parts: Map<number, { readonly bytes: Uint8Array; readonly etag: string }>;
}

type Completed = { isDone: true; text: string } | { isDone: false; status: number; text: string };

/** What a bucket holds: whole objects, and uploads in parts that are not completed yet. */
export class S3Bucket {
  readonly objects = new Map<string, Uint8Array>();
  readonly uploads = new Map<string, Upload>();
  /** Of objects, to their readers. */
  sentBytes = 0;

  put(key: string, bytes: Uint8Array): string {
    this.objects.set(key, bytes);
    return etagOf(bytes);
  }

  beginUpload(key: string): string {
    const id = `up&${crypto.randomUUID()}`;
    this.uploads.set(id, { key, parts: new Map() });
    return `<InitiateMultipartUploadResult><Key>${key}</Key><UploadId>${escapeXml(id)}</UploadId></InitiateMultipartUploadResult>`;
  }

  putPart(key: string, id: string, number: number, bytes: Uint8Array): string | undefined {
    const upload = this.uploads.get(id);
    if (upload?.key !== key || !(number >= 1 && number <= 10_000)) return undefined;
    const etag = etagOf(bytes);
    upload.parts.set(number, { bytes, etag });
    return etag;
  }

  complete(key: string, id: string, body: string): Completed {
    const upload = this.uploads.get(id);
    if (upload?.key !== key) return { isDone: false, status: 404, text: "NoSuchUpload" };
    const named = [...body.matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>(.*?)<\/ETag>/g)];
    const pieces: Uint8Array[] = [];
    for (const [index, [, number, etag]] of named.entries()) {
      const part = upload.parts.get(Number(number));
      if (part === undefined || part.etag !== etag!.replaceAll("&quot;", '"')) {
        return { isDone: false, status: 400, text: "InvalidPart" };
      }
      if (index < named.length - 1 && part.bytes.byteLength < MIN_PART_BYTES) {
        return { isDone: false, status: 400, text: "EntityTooSmall" };
      }
      pieces.push(part.bytes);
    }
    if (pieces.length === 0) return { isDone: false, status: 400, text: "MalformedXML" };
    this.uploads.delete(id);
    const etag = this.put(key, Buffer.concat(pieces));
    return {
      isDone: true,
      text: `<CompleteMultipartUploadResult><Key>${key}</Key><ETag>${escapeXml(etag)}</ETag></CompleteMultipartUploadResult>`,
    };
  }

  abort(id: string): boolean {
    return this.uploads.delete(id);
  }

  remove(key: string): void {
    this.objects.delete(key);
  }

  list(query: URLSearchParams): string {
    const prefix = query.get("prefix") ?? "";
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix)).sort();
    const entries = keys
      .slice(0, Number(query.get("max-keys") ?? 1_000))
      .map((key) => `<Contents><Key>${escapeXml(key)}</Key></Contents>`);
    return `<ListBucketResult>${entries.join("")}</ListBucketResult>`;
  }

  listUploads(prefix: string): string {
    const found = [...this.uploads].filter(([, { key }]) => key.startsWith(prefix));
    const entries = found.map(
      ([id, { key }]) =>
        `<Upload><Key>${key}</Key><UploadId>${escapeXml(id)}</UploadId><Initiator><ID>x</ID></Initiator></Upload>`,
    );
    return `<ListMultipartUploadsResult>${entries.join("")}</ListMultipartUploadsResult>`;
  }

  head(key: string): Response {
    const bytes = this.objects.get(key);
    if (bytes === undefined) return new Response(null, { status: 404 });
    return new Response(null, { headers: { "content-length": String(bytes.byteLength) } });
  }

  get(key: string, range: string | null, query: URLSearchParams): Response | undefined {
    const bytes = this.objects.get(key);
    if (bytes === undefined) return undefined;
    const headers: Record<string, string> = { etag: etagOf(bytes.subarray(0, 64)) };
    for (const name of ["content-type", "content-disposition"]) {
      const wanted = query.get(`response-${name}`);
      if (wanted !== null) headers[name] = wanted;
    }
    const match = range && /^bytes=(\d+)-(\d+)$/.exec(range);
    if (!match) return new Response(this.#inPieces(bytes), { headers });
    const start = Number(match[1]);
    const end = Math.min(Number(match[2]) + 1, bytes.byteLength);
    if (start >= bytes.byteLength) return new Response(null, { status: 416 });
    headers["content-range"] = `bytes ${start}-${end - 1}/${bytes.byteLength}`;
    return new Response(this.#inPieces(bytes.subarray(start, end)), { status: 206, headers });
  }

  /** Sent as it is asked for, so that an object can be removed while it is being read. */
  #inPieces(bytes: Uint8Array): ReadableStream<Uint8Array> {
    let sent = 0;
    return new ReadableStream(
      {
        pull: (controller) => {
          if (sent >= bytes.byteLength) return controller.close();
          const piece = bytes.slice(sent, sent + SEND_BYTES);
          controller.enqueue(piece);
          sent += SEND_BYTES;
          this.sentBytes += piece.byteLength;
        },
      },
      { highWaterMark: 0 },
    );
  }
}

function etagOf(bytes: Uint8Array): string {
  return `"${new Bun.CryptoHasher("md5").update(bytes).digest("hex")}"`;
}

function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
}
