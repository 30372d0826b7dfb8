import { downloadResponse } from "../../http/download.ts";
import type { RouteDefinition } from "../../http/route.ts";
import { MEDIA_PATH, type MediaLinks } from "./media-links.ts";

/** What browsers may show in place. An SVG is a document, so it is only ever saved, or shown within a page. */
const EXTENSIONS: Readonly<Record<string, { extension: string; isShown: boolean }>> = {
  "image/png": { extension: "png", isShown: true },
  "image/jpeg": { extension: "jpg", isShown: true },
  "image/webp": { extension: "webp", isShown: true },
  "image/gif": { extension: "gif", isShown: true },
  "image/avif": { extension: "avif", isShown: true },
  "image/svg+xml": { extension: "svg", isShown: false },
};

/** Links to what models have made. */
export function mediaRoutes(media: Pick<MediaLinks, "find">): RouteDefinition[] {
  return [
    {
      method: "GET",
      path: `${MEDIA_PATH}/:id`,
      tag: "Images",
      summary: "Fetch an image by the link of an answer; no API key is needed",
      access: { kind: "public" },
      responses: {
        200: {
          description: "The image, for an hour from when it was made",
          contentType: "image/*",
        },
        206: { description: "The range that was asked for", contentType: "image/*" },
        304: { description: "The caller has it already" },
        416: { description: "The image has no such range" },
      },
      async handle(context) {
        const id = context.params.id!;
        const found = await media.find(id);
        const kind = EXTENSIONS[found.contentType] ?? { extension: "bin", isShown: false };
        return downloadResponse(context, {
          filename: `${id.slice(0, 16)}.${kind.extension}`,
          isShown: kind.isShown,
          bytes: found.bytes,
          contentTypes: [found.contentType],
          // Under an id the bytes never change.
          etag: `"${id}"`,
          open: (range) => found.read(range),
        });
      },
    },
  ];
}
