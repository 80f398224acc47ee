"""What the files in deploy/ say of each other, which no schema knows. Called by tools/deploy-check.

Writes into the given folder what other programs check: every configuration of Tollgate, and the dashboard's expressions as rules.
"""

import json
import re
import sys
from pathlib import Path

import yaml

out = Path(sys.argv[1])
deploy = Path("deploy")


def documents(file):
    return [d for d in yaml.safe_load_all((deploy / file).read_text()) if d]


def demand(holds, what):
    if not holds:
        sys.exit(f"deploy: {what}")


kubernetes = {}
listed = yaml.safe_load((deploy / "kubernetes/kustomization.yaml").read_text())["resources"]
demand(
    sorted(listed) == sorted(p.name for p in (deploy / "kubernetes").glob("*.yaml") if p.name != "kustomization.yaml"),
    "kustomization.yaml does not list what lies beside it",
)
for name in listed:
    for document in documents(f"kubernetes/{name}"):
        key = (document["kind"], document["metadata"]["name"])
        demand(key not in kubernetes, f"{key} is there twice")
        demand(document["kind"] == "Namespace" or document["metadata"]["namespace"] == "tollgate", f"{key} has another namespace")
        kubernetes[key] = document

# What is selected is there, and what is mounted and named by ports too.
pods = {}
for (kind, name), document in kubernetes.items():
    if kind in ("Deployment", "StatefulSet"):
        template = document["spec"]["template"]
        labels = template["metadata"]["labels"]
        demand(document["spec"]["selector"]["matchLabels"].items() <= labels.items(), f"{name} does not select its own pods")
        pods[name] = template
        ports = {p["name"]: p["containerPort"] for c in template["spec"]["containers"] for p in c["ports"]}
        for volume in template["spec"].get("volumes", []):
            if "configMap" in volume:
                demand(("ConfigMap", volume["configMap"]["name"]) in kubernetes, f"{name}: no such ConfigMap: {volume}")
            if "secret" in volume:
                demand(("Secret", volume["secret"]["secretName"]) in kubernetes, f"{name}: no such Secret: {volume}")
        for container in template["spec"]["containers"]:
            known = {v["name"] for v in template["spec"].get("volumes", [])}
            for mount in container.get("volumeMounts", []):
                demand(mount["name"] in known, f"{name}: no such volume: {mount}")
            for source in container.get("envFrom", []):
                demand(("Secret", source["secretRef"]["name"]) in kubernetes, f"{name}: no such Secret: {source}")
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                port = next((how.get("port") for how in container.get(probe, {}).values() if isinstance(how, dict)), None)
                demand(port is None or port in ports, f"{name}: {probe} asks a port that is not there: {port}")
for (kind, name), document in kubernetes.items():
    if kind == "Service":
        chosen = [t for t in pods.values() if document["spec"]["selector"].items() <= t["metadata"]["labels"].items()]
        demand(len(chosen) == 1, f"the service {name} selects {len(chosen)} kinds of pods")
        ports = {p["name"] for c in chosen[0]["spec"]["containers"] for p in c["ports"]}
        for port in document["spec"]["ports"]:
            demand(port["targetPort"] in ports, f"the service {name} leads to a port that is not there: {port}")
    if kind in ("NetworkPolicy", "PodDisruptionBudget"):
        selector = (document["spec"].get("podSelector") or document["spec"].get("selector") or {}).get("matchLabels", {})
        chosen = [t for t in pods.values() if selector.items() <= t["metadata"]["labels"].items()]
        demand(chosen, f"{kind} {name} selects nothing")

tollgate = pods["tollgate"]["spec"]["containers"][0]
demand(tollgate["livenessProbe"]["httpGet"]["path"] == "/livez", "liveness is not /livez")
demand(tollgate["readinessProbe"]["httpGet"]["path"] == "/readyz", "readiness is not /readyz")

# Configurations of Tollgate: where they listen is where the ports are, and their variables are in the secret.
config = kubernetes[("ConfigMap", "tollgate")]["data"]["tollgate.yaml"]
(out / "kubernetes.tollgate.yaml").write_text(config)
secret = kubernetes[("Secret", "tollgate")]["stringData"]
demand(set(re.findall(r"\$\{(\w+)\}", config)) == set(secret), "variables of tollgate.yaml are not those of the secret")
read = yaml.safe_load(config)
for port in tollgate["ports"]:
    demand(read[port["name"]]["listen"].endswith(f":{port['containerPort']}"), f"{port['name']} does not listen at its port")
compose = documents("compose/docker-compose.yaml")[0]
composed = (deploy / "compose/tollgate.yaml").read_text()
(out / "compose.tollgate.yaml").write_text(composed)
rules = (deploy / "compose/rules.yaml").read_text()
(out / "rules.tollgate.yaml").write_text(rules + 'identity: { client: ["api_key:X-API-Key", ip] }\nservice: {}\n')
environment = compose["services"]["gateway-1"]["environment"]
demand(set(re.findall(r"\$\{(\w+)\}", composed)) == set(environment), "variables of compose/tollgate.yaml are not those of the gateways")
example = {line.split("=")[0] for line in (deploy / "compose/example.env").read_text().splitlines() if "=" in line}
asked = set(re.findall(r"\$\{(\w+):\?", (deploy / "compose/docker-compose.yaml").read_text()))
demand(asked == example, f"example.env and what Compose asks for differ: {asked ^ example}")
for name, service in compose["services"].items():
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        demand(not source.startswith(".") or (deploy / "compose" / source).exists(), f"{name} mounts what is not there: {source}")
    for needed in service.get("depends_on", {}):
        demand(needed in compose["services"], f"{name} depends on what is not there: {needed}")
    for used in service.get("configs", []):
        demand(used["source"] in compose["configs"], f"{name} uses what is not there: {used}")

# One Redis, told in three places.
conf = (deploy / "redis/redis.conf").read_text()
demand(kubernetes[("ConfigMap", "tollgate-redis")]["data"]["redis.conf"] == conf, "the ConfigMap's redis.conf is not deploy/redis/redis.conf")
acl = (deploy / "redis/users.acl").read_text()
for place, text in (
    ("the Secret", kubernetes[("Secret", "tollgate-redis")]["stringData"]["users.acl"]),
    ("Compose", compose["configs"]["users_acl"]["content"]),
):
    demand(re.sub(r">\S.*?(?= reset)", ">PASSWORD", text) == re.sub(r">\S+", ">PASSWORD", acl), f"users.acl in {place} is another than deploy/redis/users.acl")
maxmemory = int(re.search(r"^maxmemory (\d+)mb$", conf, re.M)[1])
limit = pods["tollgate-redis"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
demand(int(limit.removesuffix("Mi")) >= maxmemory * 1.4, "the pod of Redis has no room beside maxmemory")

demand("--if-empty" in compose["services"]["rules"]["command"], "every start of Compose would revert changes of rules")

# Images of others are pinned, each tag to one digest.
pinned = {}
for file in ("Dockerfile", "compose/docker-compose.yaml", *(f"kubernetes/{p.name}" for p in (deploy / "kubernetes").glob("*.yaml"))):
    for image in re.findall(r"^(?:FROM|\s*(?:- )?image:)\s+(\S+)", (deploy / file).read_text(), re.M):
        # Ours, and the empty image, which is no image of others.
        if image.startswith("tollgate:") or image == "scratch":
            continue
        tag, _, digest = image.partition("@")
        demand(re.fullmatch(r"sha256:[0-9a-f]{64}", digest), f"{file}: {image} has no digest")
        demand(pinned.setdefault(tag, digest) == digest, f"{tag} has two digests")
demand(len(pinned) >= 7, "images were not found")

# The dashboard: distinct panels that do not overlap, and expressions that can be read.
dashboard = json.loads((deploy / "grafana/tollgate.json").read_text())
cells, rules = set(), []
for panel in dashboard["panels"]:
    at = panel["gridPos"]
    for cell in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
        demand(cell not in cells and cell[0] < 24, f"{panel['title']} overlaps another panel")
        cells.add(cell)
    for target in panel.get("targets", []):
        expression = target["expr"].replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$instance", ".*")
        rules.append({"record": f"panel:{panel['id']}:{target['refId']}", "expr": expression})
demand(len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"]), "two panels have one id")
(out / "dashboard.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

# Every alert says where to read on, and that place is there.
for group in documents("prometheus/alerts.yaml")[0]["groups"]:
    for rule in group["rules"]:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        text = Path(page).read_text()
        headings = [re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.M)]
        demand(not anchor or anchor in headings, f"{rule['alert']}: {page} has no section {anchor}")
