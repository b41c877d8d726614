{{/* The labels of a part: server, migrate, agent, gc or backup. */}}
{{- define "wavetune.labels" -}}
app.kubernetes.io/name: wavetune
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* PodSecurity "restricted". 65532: any user that owns nothing. */}}
{{- define "wavetune.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "wavetune.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "wavetune.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "wavetune.database" -}}
- name: WAVETUNE_DATABASE
  valueFrom: {secretKeyRef: {name: {{ .Values.secrets.database }}, key: conninfo}}
{{- if .Values.secrets.databaseCa }}
- {name: PGSSLROOTCERT, value: /etc/wavetune/database/ca.crt}
{{- end }}
{{- end }}
{{/* Where secrets.databaseCa is, in the lists of a pod that connects to the database. */}}
{{- define "wavetune.databaseMount" -}}
- {name: database, mountPath: /etc/wavetune/database, readOnly: true}
{{- end }}
{{- define "wavetune.databaseVolume" -}}
- name: database
  secret: {secretName: {{ .Values.secrets.databaseCa }}, defaultMode: 0440}
{{- end }}

{{/* How pods of this release reach the servers. Inside a namespace, plain HTTP is what the network policy confines. */}}
{{- define "wavetune.client" -}}
- name: WAVETUNE_URL
  value: {{ if .Values.secrets.tls }}https{{ else }}http{{ end }}://{{ .Release.Name }}-server.{{ .Release.Namespace }}.svc:{{ .Values.server.port }}
{{- if .Values.secrets.tls }}
- name: SSL_CERT_FILE
  value: /etc/wavetune/tls/ca.crt
{{- else }}
- name: WAVETUNE_INSECURE_HTTP
  value: "1"
{{- end }}
{{- end }}
