import { downloadResponse } from "../../http/download.ts";
import { type RouteDefinition, route } from "../../http/route.ts";
import { MEDIA_PATH, type MediaLinks } from "./media-links.ts";

/**
 * Content types that browsers can display inline. An SVG is a document, so it is only downloaded or embedded
 * in a page.
 */
const EXTENSIONS: Readonly<Record<string, { extension: string; isShown: boolean }>> = {
  "image/png": { extension: "png", isShown: true },
  "image/jpeg": { extension: "jpg", isShown: true },
  "image/webp": { extension: "webp", isShown: true },
  "image/gif": { extension: "gif", isShown: true },
  "image/avif": { extension: "avif", isShown: true },
  "image/svg+xml": { extension: "svg", isShown: false },
};

/** Returns the route of links to generated media. */
export function mediaRoutes(media: Pick<MediaLinks, "find">): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: `${MEDIA_PATH}/:id`,
      tag: "Images",
      operationId: "media.retrieve",
      summary: "Retrieve a generated image by its link",
      access: { kind: "public" },
      responses: {
        200: {
          description: "The image; the link expires after an hour.",
          contentType: "image/*",
        },
        206: { description: "The requested range.", contentType: "image/*" },
        304: { description: "The caller's copy is current." },
        416: { description: "The image has no such range." },
      },
      async handle(context) {
        const { id } = context.params;
        const stored = await media.find(id);
        const kind = EXTENSIONS[stored.contentType] ?? { extension: "bin", isShown: false };
        return downloadResponse(context, {
          filename: `${id.slice(0, 16)}.${kind.extension}`,
          isShown: kind.isShown,
          bytes: stored.bytes,
          contentTypes: [stored.contentType],
          // The bytes of an id never change.
          etag: `"${id}"`,
          open: (range) => stored.read(range),
        });
      },
    }),
  ];
}
