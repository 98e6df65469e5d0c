"""The OpenAPI description of a server, made for its catalogue."""

from __future__ import annotations

from typing import Any

from onoff.server.problems import MEDIA_TYPE, TYPE_PREFIX
from onoff.wire import MAX_ROUND, MAX_STEP, STREAM_DIGITS, Catalogue

Schema = dict[str, Any]

_ROUND = {"type": "integer", "minimum": 0}


def describe(catalogue: Catalogue, *, readers_need_token: bool) -> Schema:
    """OpenAPI 3.1, with the numbers and names of this catalogue, so that tools can make valid requests."""
    reader: list[Schema] = [{"token": []}] if readers_need_token else []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onoff",
            "version": "1",
            "description": "Latest messages of n sources, answered in sets of equal frames (ON-OFF privacy).",
        },
        "paths": {
            "/v1/catalogue": {
                "get": _operation(
                    "The sources, in order, and the length to which messages are padded. The SHA-256 of this "
                    "document is the catalogue's fingerprint.",
                    {"application/json": _catalogue_schema(catalogue)},
                    problems=[401] if reader else [],
                    security=reader,
                )
            },
            "/v1/query": {
                "post": _operation(
                    "The frames of a set of sources, in ascending order, short ones for what is held already. The body "
                    "must be canonical: sorted keys, no blanks, ascending sources.",
                    {"application/octet-stream": {}},
                    body={"application/json": _query_schema(catalogue)},
                    problems=[400, *([401] if reader else []), 408, 409, 413, 415, 422, 503],
                    security=reader,
                )
            },
            "/v1/messages/{name}": {
                "put": _operation(
                    f"Publish one message, at most {catalogue.length} bytes.",
                    {"application/json": _acknowledgement()},
                    body={"application/octet-stream": {}},
                    problems=[400, 401, 404, 408, 413, 503],
                    security=[{"token": []}],
                    parameters=[{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                )
            },
            "/v1/rounds": {
                "post": _operation(
                    "Publish several messages together: no reader gets some of them without the others.",
                    {"application/json": _acknowledgement()},
                    body={"application/json": _publication_schema(catalogue)},
                    problems=[400, 401, 408, 409, 413, 415, 422, 503],
                    security=[{"token": []}],
                )
            },
            "/health": {
                "get": _operation(
                    "Whether queries are answered now.",
                    {"application/json": _object(status={"const": "ok"}, round=_ROUND)},
                    problems=[503],
                )
            },
            "/metrics": {"get": _operation("Counters, for Prometheus.", {"text/plain": {"type": "string"}})},
            "/openapi.json": {
                "get": _operation(
                    "This description.",
                    {"application/json": {"type": "object"}},
                    problems=[401] if reader else [],
                    security=reader,
                )
            },
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(
    summary: str,
    content: dict[str, Schema],
    *,
    body: dict[str, Schema] | None = None,
    problems: list[int] | None = None,
    security: list[Schema] | None = None,
    parameters: list[Schema] | None = None,
) -> Schema:
    problem = {"description": "Refused; nothing was changed.", "content": {MEDIA_TYPE: {"schema": _problem_schema()}}}
    operation: Schema = {
        "summary": summary,
        "security": security or [],
        "responses": {"200": {"description": "Done.", "content": _media(content)}}
        | {str(status): problem for status in [*(problems or []), 405, 500]},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _media(body)}
    if parameters is not None:
        operation["parameters"] = parameters
    return operation


def _media(content: dict[str, Schema]) -> Schema:
    return {kind: {"schema": schema} if schema else {} for kind, schema in content.items()}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _catalogue_schema(catalogue: Catalogue) -> Schema:
    return _object(
        format={"const": "onoff-catalogue"},
        length={"const": catalogue.length},
        names={"type": "array", "items": {"type": "string"}, "minItems": catalogue.n, "maxItems": catalogue.n},
        version={"const": 1},
    )


def _query_schema(catalogue: Catalogue) -> Schema:
    return _object(
        catalogue={"const": catalogue.fingerprint},
        held={
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": MAX_ROUND},
            "minItems": 1,
            "maxItems": catalogue.n,
            "description": "For each of the sources the round that the reader holds, 0 for none.",
        },
        sources={
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": catalogue.n - 1},
            "minItems": 1,
            "maxItems": catalogue.n,
            "uniqueItems": True,
            "description": "In ascending order.",
        },
        step={"type": "integer", "minimum": 0, "maximum": MAX_STEP},
        stream={"type": "string", "pattern": f"^[0-9a-f]{{{STREAM_DIGITS}}}$"},
    )


def _publication_schema(catalogue: Catalogue) -> Schema:
    longest = 4 * (-(-catalogue.length // 3))
    message = {"type": "string", "maxLength": longest, "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
    return _object(
        catalogue={"const": catalogue.fingerprint},
        messages={
            "type": "object",
            "propertyNames": {"enum": list(catalogue.names)},
            "additionalProperties": message,
            "minProperties": 1,
        },
    )


def _acknowledgement() -> Schema:
    return _object(round={"type": "integer", "minimum": 1})


def _problem_schema() -> Schema:
    return {
        "type": "object",
        "properties": {
            "type": {"type": "string", "pattern": f"^{TYPE_PREFIX}[a-z-]+$"},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string"},
            "catalogue": {"type": "string", "description": "The fingerprint in force, where another one was given."},
        },
        "required": ["type", "title", "status", "detail"],
        "additionalProperties": False,
    }
