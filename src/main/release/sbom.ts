/*
 * Writes the software bill of materials (CycloneDX) of a release to `dist`: Bun, the bundled packages, and the
 * packages that are installed with them.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Contrib, Enums, Models, Serialize, Spec } from "@cyclonedx/cyclonedx-library";
import manifest from "../../../package.json" with { type: "json" };
import { INSTALLED_PACKAGES, PROJECT } from "./bundle.ts";
import { buildPackage } from "./package.ts";

const builder = new Contrib.FromNodePackageJson.Builders.ComponentBuilder(
  new Contrib.FromNodePackageJson.Factories.ExternalReferenceFactory(),
  new Contrib.License.Factories.LicenseFactory((text) => / (AND|OR) /.test(text)),
);

/** Returns the bill of materials as JSON. */
export async function billOfMaterials(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "model-gateway-sbom-"));
  const bundled = await buildPackage(folder).finally(() => rm(folder, { recursive: true }));
  const bom = new Models.Bom();
  bom.metadata.timestamp = new Date();
  bom.metadata.component = componentOf(manifest, Enums.ComponentType.Application);
  const installed = INSTALLED_PACKAGES.map((name) => `node_modules/${name}`);
  for (const path of [...bundled, ...installed]) {
    bom.components.add(componentOf(await Bun.file(join(PROJECT, path, "package.json")).json()));
  }
  // Only the one of this machine is installed.
  for (const [name, version] of Object.entries(manifest.optionalDependencies)) {
    bom.components.add(componentOf({ name, version, license: "MIT" }));
  }
  bom.components.add(
    new Models.Component(Enums.ComponentType.Platform, "bun", { version: Bun.version }),
  );
  const normalizer = new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6);
  return new Serialize.JsonSerializer(normalizer).serialize(bom, { sortLists: true, space: 2 });
}

interface PackageManifest {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
}

function componentOf(data: PackageManifest, type = Enums.ComponentType.Library): Models.Component {
  const component = builder.makeComponent(data, type);
  if (component === undefined) throw new Error(`${data.name} has no valid package.json`);
  const purl = `pkg:npm/${data.name.replace("@", "%40")}@${data.version}`;
  component.purl = purl;
  component.bomRef.value = purl;
  return component;
}

if (import.meta.main) {
  const path = join(PROJECT, "dist", `model-gateway-${manifest.version}.cdx.json`);
  await Bun.write(path, await billOfMaterials());
  process.stdout.write(`${path}\n`);
}
