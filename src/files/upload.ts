import { type FormReading, leastFileBytes, readForm } from "../http/multipart.ts";
import type { RequestContext } from "../http/route.ts";
import { GatewayError } from "../lib/errors.ts";
import type { FileRecord } from "../lib/file-record.ts";
import type { FileUpload } from "./file-upload.ts";
import type { FileUploads } from "./file-uploads.ts";
import { MAX_FILE_BYTES } from "./purposes.ts";

/** Reads a form with `file` and `purpose` into a file, none of it staying in memory. */
export async function receiveUpload(
  context: RequestContext,
  uploads: Pick<FileUploads, "run">,
  receiving: Pick<FormReading, "clock" | "minBytesPerSecond">,
): Promise<FileRecord> {
  const { request } = context;
  const limits = { maxFileBytes: MAX_FILE_BYTES };
  const leastBytes = leastFileBytes(request, limits);
  // A slow store may hold the client back for longer than a quiet connection may last.
  const closeWhenIdle = context.keepOpen();
  const { organizationId } = context.caller.key;
  try {
    return await uploads.run(
      organizationId,
      (upload) => readForm(request, formReceiver(upload), { ...limits, ...receiving }),
      {
        leastBytes,
        // The key may have changed since the first byte came.
        admitAgain: async () => void (await context.admitAgain()),
      },
    );
  } finally {
    closeWhenIdle();
  }
}

function formReceiver(upload: FileUpload) {
  return {
    field(name: string, value: string): void {
      if (name === "purpose") upload.setPurpose(value);
      else
        throw unexpected(name, name === "file" ? "must be a file, with a filename" : "is unknown");
    },
    async file(name: string, heading: { filename: string; contentType: string }) {
      if (name !== "file") {
        throw unexpected(name, name === "purpose" ? "must not be a file" : "is unknown");
      }
      await upload.begin(heading);
      return upload;
    },
  };
}

function unexpected(name: string, what: string): GatewayError {
  const param = name.slice(0, 100);
  return new GatewayError("invalid_body", `The form's part "${param}" ${what}.`, { param });
}
