declare module "prom-client/lib/registry.js" {
  import { Registry } from "prom-client";

  export default Registry;
}
