import { send } from "./api.ts";
import { perform } from "./components/dialog.tsx";

/** Saves an answer of the API as a file, and says so, or shows why it failed. */
export async function download(path: string, filename: string): Promise<void> {
  await perform(`Downloaded ${filename}.`, async () => {
    const response = await send("GET", path, { headers: { accept: "*/*" } });
    const link = document.createElement("a");
    // A file that breaks off rejects here, so that no part of it is saved.
    link.href = URL.createObjectURL(await response.blob());
    link.download = filename;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
