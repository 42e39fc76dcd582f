/* check_chat.c -- the known forms of a chat, told by their templates.
 * SPDX-License-Identifier: GPL-3.0-or-later */
#include "suite.h"

#include "chat.h"

#include <string.h>

#define V(text) \
    { \
        (text), sizeof(text) - 1 \
    }

/* All the special tokens that the forms need. */
static const struct kvr_slice texts[] = {
    V("a"),
    V("<|im_start|>"),
    V("<|im_end|>"),
    V("<|start_header_id|>"),
    V("<|end_header_id|>"),
    V("<|eot_id|>"),
    V("<start_of_turn>"),
    V("<end_of_turn>"),
    V("<|user|>"),
    V("<|end|>"),
    V("<|assistant|>"),
};
static const uint8_t types[] = {1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};

static struct kvr_tokenizer *with_template(const char *template, size_t n)
{
    struct kvr_tokenizer *t;
    struct kvr_error err = {0};
    static const struct kvr_slice none[1];
    struct kvr_vocabulary v = {
        .kind = KVR_TOKENIZER_BPE,
        .n = n,
        .texts = texts,
        .types = types,
        .merges = none,
        .pre = V("gpt-2"),
        .bos = -1,
    };

    if (template != NULL)
        v.chat_template = kvr_slice_of(template);
    must(kvr__tokenizer_new(&t, &v, &err));
    return t;
}

enum { ALL = sizeof texts / sizeof texts[0] };

static const struct {
    const char *name, *template, *form, *text;
    bool bos;
} cases[] = {
    {"auto",
     "{% for message in messages %}{% if loop.first and messages[0]['role'] "
     "!= 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif "
     "%}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
     "'<|im_end|>' + '\n'}}",
     "chatml",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n hi "
     "\n<|im_end|>\n<|im_start|>assistant\n",
     false},
    {"auto",
     "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- messages[0].content "
     "}}{%- else %}{{- '<|im_start|>system\\nYou are Q. Be kind.<|im_end|>\\n' "
     "}}",
     "chatml",
     "<|im_start|>system\nYou are Q. Be kind.<|im_end|>\n<|im_start|>user\n hi "
     "\n<|im_end|>\n<|im_start|>assistant\n",
     false},
    {"auto", "{{'<|im_start|>' + message['role'] + '\\n'}}", "chatml",
     "<|im_start|>user\n hi \n<|im_end|>\n<|im_start|>assistant\n", false},
    {"auto",
     "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + content.strip() + ' [/INST]' "
     "}}",
     "llama-2", "[INST] hi [/INST]", true},
    {"auto",
     "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ "
     "message['content'] | trim + '<|eot_id|>' }}",
     "llama-3",
     "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     true},
    {"auto",
     "{{- \"<|start_header_id|>system<|end_header_id|>\" }}{{- \"Cutting "
     "Knowledge Date: December 2023\\n\" }}",
     "llama-3",
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
     "December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     true},
    {"auto",
     "{{ bos_token }}{{ '<start_of_turn>' + role + '\\n' + message['content'] "
     "| trim + '<end_of_turn>\\n' }}",
     "gemma", "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n",
     true},
    {"auto",
     "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{{ "
     "'<|assistant|>\\n'"
     " }}",
     "phi-3", "<|user|>\n hi \n<|end|>\n<|assistant|>\n", false},
    {"auto",
     "{{ bos_token }}{{'<|user|>\\n' + message['content'] + '<|end|>'}}",
     "phi-3", "<|user|>\n hi \n<|end|>\n<|assistant|>\n", true},
    {"auto", "{{ '<|user|>\\n' + message['content'] + eos_token }}", "zephyr",
     "<|user|>\n hi \n</s>\n<|assistant|>\n", false},
    {"zephyr", NULL, "zephyr", "<|user|>\n hi \n</s>\n<|assistant|>\n", false},
    /* another form's template says nothing about this one */
    {"llama-2", "{{'<|im_start|>system\nBe kind.<|im_end|>'}}", "llama-2",
     "[INST] hi [/INST]", true},
};

START_TEST(forms_are_written_out)
{
    struct kvr_tokenizer *t = with_template(cases[_i].template, ALL);
    struct kvr_chat chat;
    struct kvr_error err = {0};

    must(kvr__chat_apply(&chat, cases[_i].name, t, (const uint8_t *)" hi \n", 5,
                         &err));
    ck_assert_str_eq(chat.name, cases[_i].form);
    ck_assert_str_eq((const char *)chat.text, cases[_i].text);
    ck_assert_uint_eq(chat.size, strlen(cases[_i].text));
    ck_assert(chat.bos == cases[_i].bos);
    free(chat.text);
    kvr__tokenizer_free(t);
}
END_TEST

static const struct {
    const char *name, *template, *says;
    size_t n;
    enum kvr_status status;
} refused[] = {
    {"auto", NULL, "no chat template", ALL, KVR_ERR_UNSUPPORTED},
    {"auto", "{{ 'Human: ' + message }}", "no known form", ALL,
     KVR_ERR_UNSUPPORTED},
    {"auto", "{{'<|im_start|>' + role + '<|im_sep|>'}}", "no known form", ALL,
     KVR_ERR_UNSUPPORTED},
    {"auto", "{{'[INST]' + content + '[/INST]'}}", "no known form", ALL,
     KVR_ERR_UNSUPPORTED},
    {"auto",
     "{{ '<|user|>\\n' + message['content'] + '\\n' }}{{ message['content'] + "
     "eos_token }}",
     "no known form", ALL, KVR_ERR_UNSUPPORTED},
    {"auto", "{{'<|im_start|>'}}", "'<|im_start|>'", 1, KVR_ERR_UNSUPPORTED},
    {"other", NULL, "--chat=other", ALL, KVR_ERR_USAGE},
};

START_TEST(others_are_refused_with_the_list)
{
    struct kvr_tokenizer *t =
        with_template(refused[_i].template, refused[_i].n);
    struct kvr_chat chat;
    struct kvr_error err = {0};

    must_fail(kvr__chat_apply(&chat, refused[_i].name, t, (const uint8_t *)"hi",
                              2, &err),
              refused[_i].status, refused[_i].says);
    ck_assert_ptr_nonnull(
        strstr(err.message, "chatml llama-2 llama-3 gemma phi-3 zephyr"));
    ck_assert_ptr_null(chat.text);
    kvr__tokenizer_free(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chat");
    TCase *tc = tcase_create("chat");
    tcase_add_loop_test(tc, forms_are_written_out, 0,
                        sizeof cases / sizeof cases[0]);
    tcase_add_loop_test(tc, others_are_refused_with_the_list, 0,
                        sizeof refused / sizeof refused[0]);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
