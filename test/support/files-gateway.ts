import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startTestGateway, type TestGateway, type TestGatewayOptions } from "./gateway.ts";
import { BUCKET, type S3Server, startS3Server } from "./s3-server.ts";

export interface FilesGateway extends TestGateway {
  /** How many objects the store holds, unfinished ones too. */
  countStored(): Promise<number>;
  /** Undefined where files lie on disk. */
  readonly s3: S3Server | undefined;
  readonly dataDir: string;
}

export interface StoredFile {
  readonly id: string;
  readonly object: string;
  readonly bytes: number;
  readonly filename: string;
  readonly purpose: string;
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly status: string;
  readonly status_details: string | null;
}

/** A gateway whose stored files can be counted, on disk or in a store with S3's protocol. */
export async function startFilesGateway(
  kind: "disk" | "s3" = "disk",
  options: TestGatewayOptions = {},
): Promise<FilesGateway> {
  const dataDir = await mkdtemp(join(tmpdir(), "gateway-files-"));
  const s3 = kind === "s3" ? startS3Server() : undefined;
  const gateway = await startTestGateway({
    ...options,
    environment: { DATA_DIR: dataDir, ...(s3 && s3Environment(s3)), ...options.environment },
  });
  return {
    ...gateway,
    s3,
    dataDir,
    async countStored() {
      if (s3 !== undefined) return s3.bucket.objects.size + s3.bucket.uploads.size;
      return countFiles(dataDir);
    },
    async stop() {
      await gateway.stop();
      await s3?.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

export function s3Environment(s3: S3Server): Record<string, string> {
  return {
    S3_BUCKET: BUCKET,
    S3_ENDPOINT: s3.endpoint,
    S3_REGION: s3.credentials.region,
    S3_ACCESS_KEY_ID: s3.credentials.accessKeyId,
    S3_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
  };
}

/** Files that the store on disk holds under a data folder. */
export async function countFiles(dataDir: string): Promise<number> {
  const entries = await readdir(join(dataDir, "files"), {
    recursive: true,
    withFileTypes: true,
  }).catch(() => []);
  return entries.filter((entry) => entry.isFile() && entry.name !== ".storage-id").length;
}

/** A form of these parts, in this order. */
export function formOf(...parts: [name: string, value: string | File][]): FormData {
  const form = new FormData();
  for (const [name, value] of parts) form.append(name, value as string);
  return form;
}

export function upload(
  gateway: TestGateway,
  purpose: string,
  content: string | Uint8Array,
  options: { filename?: string; key?: string; type?: string } = {},
): Promise<Response> {
  const { filename = "file.bin", key = gateway.secretKey, type = "" } = options;
  const file = new File([content as BlobPart], filename, { type });
  return sendForm(gateway, formOf(["purpose", purpose], ["file", file]), key);
}

export function sendForm(
  gateway: TestGateway,
  form: FormData,
  key: string = gateway.secretKey,
): Promise<Response> {
  return fetch(`${gateway.baseUrl}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}` },
    body: form,
  });
}

/** Uploads, and fails where it is refused. */
export async function uploaded(...parameters: Parameters<typeof upload>): Promise<StoredFile> {
  const response = await upload(...parameters);
  if (response.status !== 200) throw new Error(await response.text());
  return (await response.json()) as StoredFile;
}

export function getContent(
  gateway: TestGateway,
  id: string,
  headers: Record<string, string> = {},
): Promise<Response> {
  return gateway.request("GET", `/v1/files/${id}/content`, undefined, { headers });
}

/** What the database holds of uploads, removals and quotas: sums that have to be right in every state. */
export async function fileBooks(gateway: TestGateway) {
  const [books] = await gateway.sql<Record<string, bigint>[]>`SELECT
    (SELECT count(*) FROM files) AS files,
    (SELECT count(*) FROM file_uploads) AS uploads,
    (SELECT count(*) FROM file_removals) AS removals,
    (SELECT coalesce(sum(bytes), 0)::bigint FROM files) AS file_bytes,
    (SELECT coalesce(sum(used_bytes), 0)::bigint FROM file_usage) AS used,
    (SELECT coalesce(sum(reserved_bytes), 0)::bigint FROM file_usage) AS reserved`;
  return Object.fromEntries(Object.entries(books!).map(([name, n]) => [name, Number(n)]));
}
