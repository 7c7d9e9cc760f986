/* family.h - what sheaf knows of a family of models: one constant descriptor each.
 *
 * A family is a folder of src/families, whose descriptor stands in the one table there
 * (families/families.c). Every other room asks the descriptor and tests for no family; the rooms
 * below reach the table by the functions at the end, which are declared here and defined there.
 * What is built on a tape lies higher, so its types are only named. docs/families.md says how one
 * is added. */
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "schema/picture.h"
#include "schema/schema.h"
#include "schema/spelling.h"

struct sheaf__model;
struct sheaf__tape;
struct sheaf__pass;
struct sheaf__value;
struct sheaf_catalog;
struct sheaf__llama_form;
struct sheaf__tower_names;
struct sheaf__gguf_form;
struct sheaf__gguf_projector;

/* ---- what a config and a role say, for the rooms above ---- */

/* Bit i of the lists of layers in a config. */
static inline bool sheaf__layer_in(const uint64_t *layers, int64_t i)
{
    return i < SHEAF_MAX_LAYERS && (layers[i / 64] >> (i % 64) & 1) != 0;
}

/* sheaf__has_cross - does any layer look at a tower of its own (CogAgent)? */
static inline bool sheaf__has_cross(const sheaf_config *c)
{
    uint64_t any = 0;
    for (size_t i = 0; i < sizeof c->cross_layers / sizeof *c->cross_layers; i++)
        any |= c->cross_layers[i];
    return any != 0;
}

static inline void sheaf__layer_add(uint64_t *layers, int64_t i)
{
    layers[i / 64] |= UINT64_C(1) << (i % 64);
}

/* sheaf__window_of - how many keys layer i sees, 0 = all. */
static inline int64_t sheaf__window_of(const sheaf_config *c, int64_t i)
{
    return i >= c->window_from_layer && !sheaf__layer_in(c->full_layers, i) ? c->window : 0;
}

/* sheaf__is_norm - is this the role of a norm's weight or bias? */
static inline bool sheaf__is_norm(sheaf_role role)
{
    return role == SHEAF_NORM || (role >= SHEAF_NORM_IN && role <= SHEAF_NORM_FINAL) ||
           (role >= SHEAF_NORM_Q && role <= SHEAF_NORM_AFTER_MLP);
}

/* sheaf__is_linear - is this the role of a linear layer's weight? */
static inline bool sheaf__is_linear(sheaf_role role)
{
    return role == SHEAF_HEAD || role == SHEAF_LINEAR || role == SHEAF_QKV ||
           role == SHEAF_GATE_UP || (role >= SHEAF_Q && role <= SHEAF_DOWN);
}

/* ---- parts of a model that a user may choose to train, or not ---- */

/* Llama and its kin have the first two. */
typedef enum sheaf_component {
    SHEAF_PLAN_TEXT,       /* layers of the text model, its final norm and rotary table */
    SHEAF_PLAN_EMBEDDINGS, /* word embeddings and output head */
    SHEAF_PLAN_VIT,
    SHEAF_PLAN_ADAPTER, /* with BOI and EOI */
    SHEAF_PLAN_EXPERTS, /* image tokens use them in place of the text's layers */
    SHEAF_PLAN_TOWER,   /* of the high-resolution image */
    SHEAF_PLAN_CROSS,   /* cross-attention and its norms */
    SHEAF_PLAN_COMPONENTS
} sheaf_component;

/* Tensors with `part` in their name are of this component; the first rule that holds counts. */
typedef struct sheaf__component_rule {
    const char *part; /* NULL ends a list */
    sheaf_component is;
} sheaf__component_rule;

/* ---- SAT's form ---- */

/* How SAT divides a tensor over the N parts of a checkpoint. Each holds, of each of `parts` equal
 * blocks of the axis, its N-th, in order of the blocks. A fact of the name alone, whatever the
 * sizes. */
typedef struct sheaf_sat_rule {
    int axis, parts; /* parts 0: every part has a copy */
    bool table;      /* SAT's embedding: divided from 1000 rows on, else copied */
    bool buffer;
    bool tower; /* CogAgent's alone: the high-resolution tower and the second table of positions */
    bool cross; /* of cross-attention */
} sheaf_sat_rule;

/* Layers that SAT gives LoRA factors: the ends of their paths, inside a layer of the text model or
 * of the ViT. */
typedef struct sheaf__sat_layers {
    const char *text, *vit; /* begin a path */
    const char *const *end; /* up to NULL */
} sheaf__sat_layers;

/* ---- the same model in another program's form ---- */

/* Names of its tensors there are by the `spelling` of the one family of the two that has it. */
typedef struct sheaf__other_form {
    const char *family; /* by name */
    /* The text (malloc'd) of its config there; json is that of `c`. */
    sheaf_status *(*config)(char **out, const char *json, const sheaf_config *c);
} sheaf__other_form;

/* ---- a family ---- */

typedef struct sheaf__family_spec {
    const char *name, *what; /* "cogvlm-tiny", and in a few words */
} sheaf__family_spec;

typedef struct sheaf__variant {
    const char *title, *signature; /* in sentences; as the family's */
} sheaf__variant;

typedef struct sheaf__family {
    sheaf_family id;
    const char *name;                     /* model_type: "cogvlm" */
    const char *title;                    /* in sentences: "CogVLM" */
    const char *architecture;             /* class in transformers; NULL: none */
    const struct sheaf__llama_form *form; /* of Llama and its kin: how it differs; else NULL */
    /* Of a family whose versions differ in it: that of this one; NULL: they have `form`. */
    const struct sheaf__llama_form *(*form_of)(const sheaf_config *c);
    const char *const *classes; /* SAT's spellings of the class, up to NULL: the model's, that which
                                   trains it, that which tests it; NULL: no SAT form */

    /* config */
    const sheaf__family_spec
        *specs;               /* small models that `init` makes, up to a name of NULL; or NULL */
    const char *position_key; /* a config's name of max_position */
    /* Is this object a config of the family, or of one that shares its reader? NULL: where no other
     * claims it. */
    bool (*claims)(const json_t *object);
    /* Sets c->family too. Unknown keys are added to `unknown`, separated by commas; the failure is
     * kept in r->st. */
    void (*read)(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
    /* Adds the family's part to sheaf__config_text(). */
    void (*text)(sheaf_text *text, const sheaf_config *c);

    /* In GGUF files (schema/gguf_form.h); of a family whose versions differ in it gguf_of. Both
     * NULL: llama.cpp has no such model. */
    const struct sheaf__gguf_form *gguf;
    const struct sheaf__gguf_form *(*gguf_of)(const sheaf_config *c);
    /* Its tower in a GGUF file of its own; NULL, or returns NULL: none is written. */
    const struct sheaf__gguf_projector *(*projector_of)(const sheaf_config *c);
    const sheaf__other_form *other; /* SAT's of the hub's, and the hub's of SAT's; NULL: none */

    /* tensors */
    /* Of a family whose rows and builder have the names of another form of the same model: how its
     * own files spell them; NULL: as they are. */
    const sheaf__name_rule *spelling;
    /* Fills tensor and count of a schema whose config and slices are set. On failure the caller
     * frees what there is. */
    sheaf_status *(*rows)(sheaf_schema *schema);
    bool (*sat_rule)(sheaf_sat_rule *out, const char *name); /* false: no tensor of that name */
    const char *sat_begin; /* names of tensors that begin so are of no other program */
    /* Patterns of its tensors' names, all of which must hold: "begin:inside", some name has
     * `begin` in it and `inside` behind that; "a|b", one of both; "!a", none has. NULL: tensors do
     * not identify it. The last family of the table that matches counts. */
    const char *signature;
    /* Sizes of which a config says nothing, by the tensors that were found; NULL: it says all. */
    void (*sizes)(sheaf_config *c, const struct sheaf_catalog *found);
    const char *tower_names; /* of a tower beside: what its tensors are called, in a message */
    /* Is this a tensor of the files that no training changes, with the table of angles? By names
     * alone: has() says whether any begins so. NULL: there are none. */
    bool (*idle)(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self);
    /* Of a family whose versions have tensors of other names: the first of these that matches is
     * theirs, up to a title of NULL; and the one that the config says. NULL: there is one. */
    const sheaf__variant *variants;
    const char *(*variant_of)(const sheaf_config *c);
    /* How names begin in files, and in the model, of all namings that programs give the files of
     * one model: the first rule that holds counts, and the last for a beginning in the model is
     * that of the published files. At most 32. NULL: all are the same. */
    const sheaf__name_rule *file_names;
    /* Is this a tensor of layers that files may hold and no model of this config has? NULL: there
     * are none. */
    bool (*spare)(const char *name, const sheaf_config *c);
    /* Adds to a failure what to try where the files lack a tensor (shape NULL), or hold it in
     * another shape, of `ndim` axes. NULL: nothing. */
    sheaf_status *(*advise)(sheaf_status *st, const sheaf_config *c, const char *name,
                            const int64_t *shape, int ndim);
    /* A number of a buffer, by its place in memory. */
    float (*buffer)(const sheaf_tensor *tensor, const sheaf_config *c, int64_t index);
    const char *head, *table; /* names of the output head and of the embedding */
    /* Of the rotary embedding, where files hold them, '#' for the number of a layer; else NULL. */
    const char *frequencies;
    bool angles_rounded; /* angles of these are taken in the compute dtype; else in float32 */
    const sheaf__component_rule *components;

    /* images; NULL: it reads none */
    /* Of a decoder of Llama's kin: the tower before it (families/llama/tower.h). */
    const struct sheaf__tower_names *(*tower)(const sheaf_config *c);
    int (*towers)(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c);
    sheaf__image_place image;
    /* Of those with prompts of their own (inputs/template.h): the key of a config that names one;
     * NULL: text_processor_version. And are chat and vqa questions with answers, earlier turns
     * included? */
    const char *template_key;
    bool questions;
    /* Of those whose pictures stand in conversations of a chat template; NULL: others. */
    void (*pictures)(sheaf__picture_form *out, const sheaf_config *c);
    /* Lists settings in which the config and `beside`, those of the file `name`
     * (models/picture_settings.h), disagree, and the one that counts; nothing if they agree. beside
     * NULL: no such file. NULL: there are none. */
    void (*disagree)(sheaf_text *out, const sheaf_config *c, const json_t *beside,
                     const char *name);
    /* Takes settings that such a file has and config.json has not, and refuses what is not done;
     * what is the same for all families is checked already. NULL: its program reads no such file.
     * The failure is kept in r->st. */
    void (*beside)(sheaf_json_reader *r, sheaf_config *c);
    /* The same of settings for videos; NULL: its program reads none. */
    void (*videos_beside)(sheaf_json_reader *r, sheaf_config *c);

    /* training */
    const char *lora_targets;            /* default targets */
    const sheaf__sat_layers *sat_layers; /* that SAT gives factors; NULL: it knows no such model */
    bool (*decays)(const char *name); /* weight decay by a tensor's name; NULL: the model's rule */
    bool paths; /* LoRA targets are whole paths, or ends of them (lora/paths.h); else as PEFT's */

    /* Generation reads all again when a sequence grows to a length that changes the angles of
     * earlier positions (models/rope.h); else kept keys stay as they were. */
    bool reads_again;

    /* passes, on a tape */
    sheaf_status *(*build)(struct sheaf__model *m);
    /* The output of tower `tower` of the list for the images of a pass; NULL if nothing reads it.
     */
    struct sheaf__value *(*encode)(struct sheaf__model *m, struct sheaf__tape *tape,
                                   const struct sheaf__pass *pass, int tower);
    /* Writes image rows over their places in the embedded sequence. */
    void (*place)(struct sheaf__model *m, struct sheaf__tape *tape, struct sheaf__value *x,
                  struct sheaf__value *image, const struct sheaf__pass *pass);
} sheaf__family;

/* sheaf__family_at - the i-th of the table, in order of sheaf_family; NULL behind the last. */
const sheaf__family *sheaf__family_at(int i);
/* sheaf__family_for - never NULL. */
const sheaf__family *sheaf__family_for(const sheaf_config *config);
#define SHEAF__SCORES_CLASS "ForSequenceClassification"
#define SHEAF__SCORE "score.weight"
/* sheaf__may_score - can it be a reward model? Text models whose rows are Llama's. */
static inline bool sheaf__may_score(const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->form != NULL && family->tower == NULL && family->architecture != NULL &&
           strstr(family->architecture, "ForCausalLM") != NULL;
}
/* sheaf__is_class - is it the family's class in transformers, or that of its reward models? */
bool sheaf__is_class(const sheaf__family *family, const char *name);
/* sheaf__config_score - makes a reward model of it. */
void sheaf__config_score(sheaf_config *config);
/* sheaf__gguf_form_of - NULL: llama.cpp has no such model. */
static inline const struct sheaf__gguf_form *sheaf__gguf_form_of(const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->gguf_of != NULL ? family->gguf_of(config) : family->gguf;
}
/* sheaf__gguf_projector_of - NULL: no file of its tower is written. */
static inline const struct sheaf__gguf_projector *
sheaf__gguf_projector_of(const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->projector_of == NULL ? NULL : family->projector_of(config);
}
/* sheaf__family_named - by model_type; NULL: there is none of that name. */
const sheaf__family *sheaf__family_named(const char *name);
/* Tensors of a file or a catalog: name(self, 0..count). */
typedef struct sheaf__tensor_names {
    const char *(*name)(const void *self, int64_t i);
    const void *self;
    int64_t count;
} sheaf__tensor_names;
/* sheaf__family_reading - the family whose reader a config is for: that which claims it, of several
 * with one reader any; else Llama. */
const sheaf__family *sheaf__family_reading(const json_t *object);
/* sheaf__template_key - the key of a model's config that names a template of prompts. */
const char *sheaf__template_key(const sheaf_config *config);
/* sheaf__spelled - `name`, as rows and builder of the family have it, in its own files; text of
 * `out`, or `name`. */
const char *sheaf__spelled(char out[SHEAF__SPELLED], const sheaf__family *family, const char *name);
/* sheaf__other_family - the family's other form; NULL: it has one. */
const sheaf__family *sheaf__other_family(const sheaf__family *family);
/* sheaf__spell_form - a name of the other form as `to`, which has one, spells it, or (there) the
 * other way round. false: as sheaf__respell(). */
bool sheaf__spell_form(char out[SHEAF__SPELLED], const sheaf__family *to, bool there,
                       const char *name);
/* sheaf__family_by_names - the family that these match, or NULL. */
const sheaf__family *sheaf__family_by_names(const sheaf__tensor_names *names);
/* The model of tensors, by their names. */
typedef struct sheaf__identity {
    const sheaf__family *family; /* NULL: of none in the table */
    const char *variant; /* title; NULL: the family has none, or these are of none of them */
} sheaf__identity;
/* sheaf__model_by_names - the family that these match, and the first of its variants. */
sheaf__identity sheaf__model_by_names(const sheaf__tensor_names *names);
/* sheaf__config_title - of the model, with its version: "MiniCPM-V 2.6". */
const char *sheaf__config_title(const sheaf_config *config);
/* sheaf__may_be - is this the model of the config? */
bool sheaf__may_be(const sheaf__identity *is, const sheaf_config *config);
/* sheaf__identity_title - adds its title, and those of families whose tensors have the same names:
 * "Llama, Mistral, SmolLM3 or Gemma". */
void sheaf__identity_title(sheaf_text *out, const sheaf__identity *is);
/* sheaf__is_spare - of layers that files may hold and no model of this config has. */
bool sheaf__is_spare(const sheaf_config *config, const char *name);
/* sheaf__spec_config - the config of a small model that `init` makes, by its name; NULL: none. */
const char *sheaf__spec_config(const char *name);
/* sheaf__family_of_class - by one of SAT's spellings, or NULL. */
const sheaf__family *sheaf__family_of_class(const char *model_class);
/* sheaf__sat_rule_of - false when no family has a tensor of this name in SAT's form. */
bool sheaf__sat_rule_of(sheaf_sat_rule *out, const char *name);
/* sheaf__sat_begins - a name that only a program of SAT gives? */
bool sheaf__sat_begins(const char *name);
/* sheaf__sat_family - a family with SAT's form that has a tower beside, or has none. */
const sheaf__family *sheaf__sat_family(bool beside);
/* sheaf__family_component - which part of a model a tensor is, by its name or a LoRA factor's. */
sheaf_component sheaf__family_component(const sheaf__family *family, const char *name);
