import { S3Bucket } from "./s3-bucket.ts";
import { checkSignature, type S3Credentials } from "./s3-signature.ts";

export interface S3Fault {
  /** Of the requests that come, these. */
  matches(method: string, url: URL): boolean;
  /** Answers in the store's place; undefined lets the request through after all. */
  answer(): Response | Promise<Response | undefined> | undefined;
}

/** A store with S3's wire protocol, for tests: signatures are checked, objects lie in memory. */
export interface S3Server {
  readonly endpoint: string;
  readonly bucket: S3Bucket;
  readonly credentials: S3Credentials;
  /** Faults are asked in order, for every request, until they are taken out. */
  readonly faults: S3Fault[];
  /** Method and path with query, of every request in order. */
  readonly requests: string[];
  stop(): Promise<void>;
}

export const BUCKET = "stored-files";

export function startS3Server(): S3Server {
  const bucket = new S3Bucket();
  const credentials = {
    accessKeyId: "AKIATEST",
    secretAccessKey: "wJalrXUtnFEMI/K7MDENG",
    region: "eu-central-1",
  };
  const faults: S3Fault[] = [];
  const requests: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    reusePort: false,
    idleTimeout: 0,
    async fetch(request) {
      const url = new URL(request.url);
      requests.push(`${request.method} ${url.pathname}${url.search}`);
      for (const fault of [...faults]) {
        const answer = fault.matches(request.method, url) ? await fault.answer() : undefined;
        if (answer !== undefined) return answer;
      }
      const body = new Uint8Array(await request.arrayBuffer());
      const wrong = checkSignature(request, url, body, credentials);
      if (wrong !== undefined) return error(403, wrong);
      return answerRequest(bucket, request, url, body);
    },
  });
  return {
    endpoint: `http://127.0.0.1:${server.port}`,
    bucket,
    credentials,
    faults,
    requests,
    stop: () => server.stop(true),
  };
}

function answerRequest(
  bucket: S3Bucket,
  request: Request,
  url: URL,
  body: Uint8Array,
): Response | Promise<Response> {
  const [, name, ...rest] = url.pathname.split("/");
  if (name !== BUCKET) return error(404, "NoSuchBucket");
  const key = decodeURIComponent(rest.join("/"));
  const { searchParams: query } = url;
  const uploadId = query.get("uploadId");
  switch (request.method) {
    case "GET":
      if (key === "" && query.has("list-type")) return xml(bucket.list(query));
      if (key === "") return xml(bucket.listUploads(query.get("prefix") ?? ""));
      return bucket.get(key, request.headers.get("range"), query) ?? error(404, "NoSuchKey");
    case "HEAD":
      return bucket.head(key);
    case "PUT": {
      if (uploadId === null) return etag(bucket.put(key, body));
      const put = bucket.putPart(key, uploadId, Number(query.get("partNumber")), body);
      return put === undefined ? error(404, "NoSuchUpload") : etag(put);
    }
    case "POST": {
      if (query.has("uploads")) return xml(bucket.beginUpload(key));
      const completed = bucket.complete(key, uploadId ?? "", new TextDecoder().decode(body));
      return completed.isDone ? xml(completed.text) : error(completed.status, completed.text);
    }
    case "DELETE":
      if (uploadId === null) bucket.remove(key);
      else if (!bucket.abort(uploadId)) return error(404, "NoSuchUpload");
      return new Response(null, { status: 204 });
  }
  return error(405, "MethodNotAllowed");
}

const etag = (value: string): Response => new Response(null, { headers: { etag: value } });

const xml = (text: string, status = 200): Response =>
  new Response(`<?xml version="1.0" encoding="UTF-8"?>\n${text}`, {
    status,
    headers: { "content-type": "application/xml" },
  });

const error = (status: number, code: string): Response =>
  xml(`<Error><Code>${code}</Code><Message>${code}</Message></Error>`, status);
