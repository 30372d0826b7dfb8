import type { Database } from "../../../db/client.ts";
import { readFileFolderId } from "../../../db/queries/file-read.ts";
import { readFolderMark, wrongFolder } from "../../storage/folder-mark.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "file storage";

/** Whether the folder for stored files is the one in which the database's files lie. Changes nothing. */
export async function checkFileFolder(sql: Database, root: string): Promise<Finding> {
  try {
    const known = await readFileFolderId(sql);
    if (known === undefined) return ok(NAME, `${root}, from the first file on`);
    const mark = await readFolderMark(root);
    return mark === known ? ok(NAME, root) : wrong(NAME, wrongFolder(root, mark, known));
  } catch (error) {
    return wrong(NAME, error);
  }
}
