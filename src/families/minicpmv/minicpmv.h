/* minicpmv.h - MiniCPM-V from 2.0 to 4.5, and MiniCPM-o 2.6 for its pictures: a SigLIP tower, a
 * resampler, a decoder of Llama's kin.
 *
 *              tower                                 resampler's keys     decoder
 *   2.0        timm's, positions resized             sines of each grid   Llama with constants
 *   2.5        NaViT, positions along one row        part of a table      Llama
 *   2.6, o2.6  NaViT, positions by buckets           part of a table      Qwen2
 *   4.0        as 2.6                                as 2.6               Llama
 *   4.5        as 2.6                                and of frames        Qwen3 */
#pragma once

#include "families/common/families.h"
#include "families/llama/llama.h"

#define SHEAF__MINICPMV_NAME "minicpmv"
#define SHEAF__MINICPMV_CLASS "MiniCPMV"
#define SHEAF__MINICPMV_LLM SHEAF__GGUF_INSIDE
#define SHEAF__MINICPMV_TOWER "vpm."
#define SHEAF__MINICPMV_RESAMPLER "resampler."

/* Differences between versions. */
typedef struct sheaf__minicpmv_version {
    sheaf_minicpmv version;
    double number;
    bool omni;                       /* MiniCPM-o, whose other tensors are kept and not read */
    const char *title, *folder;      /* "MiniCPM-V 2.6", and as it was published */
    const char *text;                /* model_type of its text model, */
    const sheaf__llama_form *form;   /* and how that differs from Llama */
    const sheaf__gguf_form *gguf;    /* that model in GGUF files, */
    sheaf__gguf_projector projector; /* and the tower; all zero: none */
    const char *chat;                /* template where none is stored */
    const char *stop;                /* ends an answer, beside what files name; NULL: none */
    bool numbered;                   /* pictures have numbers, and slices marks of their own */
    bool thoughts;                   /* its program is told whether an answer has thoughts */
    int64_t frames;                  /* of a video that give rows together; 0: each for itself */
    int64_t frame_slices;            /* of a frame at most; 0: it reads no videos */
} sheaf__minicpmv_version;

/* sheaf__minicpmv_version_of - never NULL. */
const sheaf__minicpmv_version *sheaf__minicpmv_version_of(const sheaf_config *c);
const sheaf__llama_form *sheaf__minicpmv_form(const sheaf_config *c);
void sheaf__minicpmv_read_version(sheaf_json_reader *r, sheaf_config *c);

bool sheaf__minicpmv_claims(const json_t *object);
void sheaf__minicpmv_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
void sheaf__minicpmv_text(sheaf_text *text, const sheaf_config *c);

/* In conversations, and in slices (pictures.c). */
void sheaf__minicpmv_disagree(sheaf_text *out, const sheaf_config *c, const json_t *beside,
                              const char *name);
void sheaf__minicpmv_beside(sheaf_json_reader *r, sheaf_config *c);
void sheaf__minicpmv_check_slices(sheaf_json_reader *r, const sheaf_config *c);
void sheaf__minicpmv_pictures(sheaf__picture_form *out, const sheaf_config *c);
