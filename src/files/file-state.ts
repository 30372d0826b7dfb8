import type { FileStatus } from "../lib/file-record.ts";

/*
 * The status of a file (spec 3.2).
 *
 * uploaded   The file has an id, and its content is still being made. Downloading it gives an empty body.
 *            Only files that the gateway itself writes are ever seen so: results are announced by the job
 *            that makes them. What a caller uploads is checked while it streams in, and exists from its
 *            last byte on.
 * processed  The content is whole and was found good; it never changes again. Uploads begin here.
 * error      The content could not be made, or whoever reads it found it unusable; `status_details` says
 *            why. Final. What bytes there are can still be read.
 *
 * Triggers: `use`, somebody such as a fine-tuning job begins to work with the content; `succeed`, the
 * content is whole; `fail`, it is no good. Each may come twice, from a job that does not know whether its
 * last attempt was heard: a repeated one changes nothing. A file that is deleted has no status, and no
 * trigger finds it.
 */

export type FileTrigger = "use" | "succeed" | "fail";

export type FileDecision =
  | { readonly kind: "become"; readonly status: FileStatus }
  /** The trigger has been heard already, or asks for no change. */
  | { readonly kind: "stay" }
  | { readonly kind: "refuse"; readonly reason: string };

const STAY: FileDecision = { kind: "stay" };

export function decideFileTrigger(status: FileStatus, trigger: FileTrigger): FileDecision {
  switch (status) {
    case "uploaded":
      if (trigger === "succeed") return { kind: "become", status: "processed" };
      if (trigger === "fail") return { kind: "become", status: "error" };
      return { kind: "refuse", reason: "is still being processed" };
    case "processed":
      return trigger === "fail" ? { kind: "become", status: "error" } : STAY;
    case "error":
      return trigger === "fail" ? STAY : { kind: "refuse", reason: "is in error" };
  }
}
