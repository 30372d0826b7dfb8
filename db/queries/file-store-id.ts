import type { Database } from "../client.ts";

/** The id of the folder in which the files of this database lie; undefined before the first one. */
export async function readFileFolderId(sql: Database): Promise<string | undefined> {
  const [row] = await sql<{ id: string }[]>`SELECT id FROM file_stores WHERE kind = 'folder'`;
  return row?.id;
}

/** Makes this the folder of the database's files where it has none yet. Resolves with the one that it has. */
export async function claimFileFolder(sql: Database, id: string): Promise<string> {
  await sql`INSERT INTO file_stores (kind, id) VALUES ('folder', ${id}) ON CONFLICT DO NOTHING`;
  return (await readFileFolderId(sql))!;
}
