import type { FileRecord } from "../../src/lib/file-record.ts";
import type { Database } from "../client.ts";
import { type FileRow, fileRecord } from "./file-rows.ts";

export interface FileListing {
  readonly organizationId: string;
  /** Undefined: all. */
  readonly purpose: string | undefined;
  readonly order: "asc" | "desc";
  /** The page begins behind this id, whether there still is a file of that id or not. */
  readonly after: string | undefined;
  readonly limit: number;
}

/** A page of an organization's files in the order of their creation, which is that of their ids. */
export async function listFiles(
  sql: Database,
  listing: FileListing,
): Promise<{ files: FileRecord[]; hasMore: boolean }> {
  const { organizationId, limit } = listing;
  const isAscending = listing.order === "asc";
  const cursor =
    listing.after === undefined
      ? sql``
      : isAscending
        ? sql`AND id COLLATE "C" > ${listing.after}`
        : sql`AND id COLLATE "C" < ${listing.after}`;
  const purpose = listing.purpose === undefined ? sql`` : sql`AND purpose = ${listing.purpose}`;
  const rows = await sql<FileRow[]>`
    SELECT * FROM files WHERE organization_id = ${organizationId} ${cursor} ${purpose}
      AND (expires_at IS NULL OR expires_at > clock_timestamp())
    ORDER BY id COLLATE "C" ${isAscending ? sql`ASC` : sql`DESC`} LIMIT ${limit + 1}`;
  return { files: rows.slice(0, limit).map(fileRecord), hasMore: rows.length > limit };
}
